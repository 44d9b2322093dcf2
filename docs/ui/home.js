// The table of plants on the first page. It sends its token to this service only, and the browser forgets the
// token when the tab is closed.

const base = new URL("..", import.meta.url)
const element = (id) => document.getElementById(id)
const fields = [...document.querySelectorAll("th")].map((th) => th.className)
const pages = [] // the addresses of the pages up to this one
let shown = new Map() // the times of the plants on this page, by id
let next, stop, timer, loads = 0, state = ""

// get responds with the response to a GET, or throws the Error in it.
async function get(path, signal, accept = "application/json") {
  const headers = { Accept: accept, Authorization: `Bearer ${sessionStorage.getItem("token")}` }
  const response = await fetch(new URL(path, base), { headers, signal })
  if (!response.ok) {
    const { message = response.statusText, error } = await response.json().catch(() => ({}))
    throw Object.assign(new Error(`${message} (error ${error ?? response.status})`), { status: response.status })
  }
  return response
}

// exact keeps the digits of ids, which numbers would round beyond 2^53.
const exact = (key, value, context) => key === "id" ? context?.source ?? value : value

function firstPage() {
  const query = new URLSearchParams(new FormData(element("search")))
  for (const name of ["q", "tag"]) if (!query.get(name)) query.delete(name)
  pages.splice(0, Infinity, `plants?limit=25&count=true&${query}`)
}

// load shows the page. Rows that are new, or changed, since the page was shown are marked.
async function load() {
  const number = ++loads
  const response = await get(pages.at(-1), stop.signal)
  const rows = JSON.parse(await response.text(), exact)
  if (number !== loads) return // another page was asked for meanwhile
  const link = /<([^>]*)>; rel="next"/.exec(response.headers.get("Link"))?.[1]
  next = link && "plants" + new URL(link, base).search
  document.querySelector("tbody").replaceChildren(...rows.map((row) => {
    const tr = document.createElement("tr")
    tr.classList.toggle("new", shown.size > 0 && shown.get(row.id) !== row.updated_at)
    for (const field of fields) {
      const text = field.endsWith("_at") ? new Date(row[field]).toLocaleString() : row[field] ?? ""
      Object.assign(tr.insertCell(), { className: field, textContent: text })
    }
    return tr
  }))
  shown = new Map(rows.map((row) => [row.id, row.updated_at]))
  element("count").textContent = `Page ${pages.length}; plants in all: ${response.headers.get("X-Total-Count")}`
  element("previous").disabled = pages.length < 2
  element("next").disabled = !next
  element("plants").hidden = false
  report(state)
}

function show(another) {
  if (another) shown.clear()
  load().catch(report)
}

// follow loads the page again after each change, at most every half a second, until the token is rejected.
async function follow(signal) {
  for (let cursor = ""; !signal.aborted;) {
    try {
      const response = await get(`plants/changes${cursor && "?after=" + encodeURIComponent(cursor)}`, signal, "text/event-stream")
      state = "Live: the table shows changes as they happen."
      await load() // with what changed before the stream began
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
      for (let text = ""; ;) {
        const { value, done } = await reader.read()
        if (done) break
        const events = (text + value).split("\n\n")
        text = events.pop()
        for (const event of events) {
          cursor = /^id: (.*)$/m.exec(event)?.[1] ?? cursor
          if (event.includes('{"id":')) timer ??= setTimeout(() => { timer = undefined; show() }, 500)
        }
      }
    } catch (error) {
      if (signal.aborted) return
      if ([401, 403].includes(error.status)) return start(error)
      if (error.status === 410) cursor = "" // too old
      report(error, state = "Not live, trying again: ")
    }
    await new Promise((resolve) => setTimeout(resolve, 2000))
  }
}

function report(error, prefix = "") {
  if (error.name !== "AbortError") element("status").textContent = prefix + (error.message ?? error)
}

// start shows the plants, or asks for a token if there is none, or if it was rejected with error.
function start(error) {
  stop?.abort()
  stop = new AbortController()
  if (error) sessionStorage.removeItem("token")
  const token = sessionStorage.getItem("token")
  element("enter").hidden = !!token
  element("search").hidden = !token
  element("plants").hidden = true // until it is loaded
  shown.clear()
  firstPage()
  report(error ?? "")
  if (token) follow(stop.signal)
}

element("curl").textContent = element("curl").textContent.replace("http://localhost:8080/", base)
element("enter").addEventListener("submit", (event) => {
  event.preventDefault()
  sessionStorage.setItem("token", element("token").value.trim())
  element("enter").reset()
  start()
})
element("search").addEventListener("submit", (event) => event.preventDefault())
element("search").addEventListener("input", () => { firstPage(); show(true) })
element("forget").addEventListener("click", () => start("The token is forgotten."))
element("previous").addEventListener("click", () => { pages.pop(); show(true) })
element("next").addEventListener("click", () => { pages.push(next); show(true) })
start()

// The layout of the page. The file has the name that gin-swagger's page expects for Swagger
// UI's own, whose top bar would let the user load any other document.

const viewport = document.createElement("meta")
viewport.name = "viewport"
viewport.content = "width=device-width, initial-scale=1"
document.head.append(viewport)

// The page is dark if the system is.
const dark = matchMedia("(prefers-color-scheme: dark)")
const setDark = () => document.documentElement.classList.toggle("dark-mode", dark.matches)
setDark(dark.addEventListener("change", setDark))

const methods = ["post", "get", "put", "patch", "delete"]

// compareOperations sorts by method, then the operations on all plants before those on one.
function compareOperations(a, b) {
  return methods.indexOf(a.get("method")) - methods.indexOf(b.get("method")) || a.get("path").length - b.get("path").length
}

// format indents JSON and keeps the digits of all numbers: JSON.parse would round integers
// beyond 2^53. What is no JSON, and what an older browser receives, stays as it is.
function format(json) {
  try {
    const exact = (_, value, { source }) => typeof value === "number" ? JSON.rawJSON(source) : value
    return JSON.stringify(JSON.parse(json, exact), null, 2)
  } catch {
    return json
  }
}

// removeStreams removes the responses that Swagger UI cannot show: it waits for their end.
function removeStreams(spec) {
  for (const operations of Object.values(spec.paths)) {
    for (const operation of Object.values(operations)) {
      for (const response of Object.values(operation.responses)) {
        delete response.content?.["text/event-stream"]
      }
    }
  }
  return spec
}

// Swagger UI gives these elements no names, which screen readers need.
const names = {
  ".examples-select-element": () => "Example",
  ".body-param__text": () => "Request body",
  ".copy-to-clipboard button": () => "Copy",
  "[data-param-name] select": (select) => select.closest("[data-param-name]").dataset.paramName,
}

function addNames() {
  for (const [selector, name] of Object.entries(names)) {
    document.querySelectorAll(`${selector}:not([aria-label])`).forEach((e) => e.setAttribute("aria-label", name(e)))
  }
}

new MutationObserver(addNames).observe(document.body, { childList: true, subtree: true })

// fold wraps a component that repeats in each response: it shows when opened.
const fold = (React, title) => (Component) => (props) =>
  React.createElement("details", null, React.createElement("summary", null, title(props)), React.createElement(Component, props))

window.SwaggerUIStandalonePreset = [
  ({ React }) => ({
    components: {
      StandaloneLayout: ({ getComponent }) =>
        React.createElement("main", { className: "swagger-ui" }, React.createElement(getComponent("BaseLayout", true))),
    },
    wrapComponents: {
      headers: fold(React, () => "Headers"),
      operationLink: fold(React, ({ name }) => name),
      // A documented error, and each documented response beside the response to a request, is a line that opens.
      response: (Response, { specSelectors }) => (props) => {
        if (props.code < 400 && !specSelectors.responseFor(props.path, props.method)) {
          return React.createElement(Response, props)
        }
        return React.createElement("tr", { className: "response" },
          React.createElement("td", { className: "response-col_status" }, props.code),
          React.createElement("td", { className: "response-col_description", colSpan: 2 },
            React.createElement("details", null, React.createElement("summary", null, props.response.get("description")),
              React.createElement("table", { className: "responses-table" }, React.createElement("tbody", null, React.createElement(Response, props))))))
      },
      responses: (Responses, { specSelectors }) => (props) => {
        const samples = specSelectors.specJson().getIn(["paths", props.path, props.method, "x-codeSamples"])
        const Code = props.getComponent("HighlightCode", true)
        return React.createElement(React.Fragment, null,
          samples && React.createElement("details", { className: "samples opblock-description-wrapper" },
            React.createElement("summary", null, `Samples in ${samples.map((s) => s.get("label")).join(", ")}, for TOKEN and BASE_URL=${new URL("..", location).href.slice(0, -1)}`),
            samples.map((s) => React.createElement(React.Fragment, { key: s.get("label") }, React.createElement("h5", null, s.get("label")),
              React.createElement(Code, { language: s.get("lang") === "Shell" ? "bash" : s.get("lang").toLowerCase(), canCopy: true }, s.get("source"))))),
          React.createElement(Responses, props))
      },
      responseBody: (ResponseBody) => (props) => {
        const { content, contentType, getComponent } = props
        if (typeof content !== "string" || !/^application\/json\b/.test(contentType)) {
          return React.createElement(ResponseBody, props)
        }
        return React.createElement("div", null,
          React.createElement("h5", null, "Response body"),
          React.createElement(getComponent("HighlightCode", true),
            { language: "json", downloadable: true, fileName: "response.json", canCopy: true }, format(content)))
      },
    },
    statePlugins: {
      spec: {
        wrapActions: {
          updateJsonSpec: (original) => (spec) => original(removeStreams(spec)),
        },
        wrapSelectors: {
          selectExternalDocsUrl: () => () => "../docs/api.md", // behind any proxy
          taggedOperations: (original) => (...args) =>
            original(...args).map((tag) => tag.update("operations", (list) => list.sort(compareOperations))),
        },
      },
    },
  }),
]

// The layout of the page. The file has the name that gin-swagger's page expects for Swagger
// UI's own, whose top bar would let the user load any other document.

const viewport = document.createElement("meta")
viewport.name = "viewport"
viewport.content = "width=device-width, initial-scale=1"
document.head.append(viewport)

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

window.SwaggerUIStandalonePreset = [
  ({ React }) => ({
    components: {
      StandaloneLayout: ({ getComponent }) =>
        React.createElement("main", { className: "swagger-ui" }, React.createElement(getComponent("BaseLayout", true))),
    },
    wrapComponents: {
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
          taggedOperations: (original) => (...args) =>
            original(...args).map((tag) => tag.update("operations", (list) => list.sort(compareOperations))),
        },
      },
    },
  }),
]

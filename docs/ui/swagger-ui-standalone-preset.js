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

// Of the scheme that the document has if people can sign in on the page.
const signIn = "OAuth2"

// redirectURL is where the provider sends people back to.
const redirectURL = new URL("oauth2-redirect.html", location.href).href

const authorizeAgain = "click Authorize, then Logout, and sign in again"

function describeSignIn(spec) {
  const scheme = spec.components?.securitySchemes[signIn]
  if (scheme) {
    const client = scheme.flows.authorizationCode["x-defaultClientId"]
    scheme.description += ` If the provider rejects the redirect, ask its operator to add the redirect URL \`${redirectURL}\` to the client \`${client}\`.`
  }
  return spec
}

// advise says what to do about an error of the sign-in.
function advise(message) {
  if (/invalid_scope/.test(message)) {
    return "Sign in without the scope that the provider rejects, or ask the operator of this service to change docs.oauth2.scopes."
  }
  if (/access_denied/.test(message)) {
    return "Sign in with fewer scopes, or as a user who may have them."
  }
  if (/Failed to fetch|NetworkError|Load failed/.test(message)) {
    return `The provider cannot be reached, or does not let pages of ${location.origin} read its responses: ask its operator to allow this origin (CORS).`
  }
  if (/invalid_client|unauthorized_client|unsupported_response_type/.test(message)) {
    return "Ask the operator of the provider to make the client a public client, without a secret, with the authorization code flow and PKCE."
  }
  return "Sign in again. If that does not help, show this message to the operator of this service."
}

// What to do about a response to a request with the token of a sign-in, by status.
const signInHints = {
  401: `Your session has ended, or the service does not accept its token: ${authorizeAgain}.`,
  403: `Your session lacks a scope, which the message names: ${authorizeAgain} with this scope. If that does not help, the provider does not give you the scope: ask its operator.`,
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
      liveResponse: (LiveResponse, system) => (props) => {
        const hint = system.authSelectors.authorized().get(signIn) && signInHints[props.response.get("status")]
        return React.createElement("div", null,
          hint && React.createElement("p", { className: "sign-in-hint", role: "alert" }, hint),
          React.createElement(LiveResponse, props))
      },
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
      auth: {
        wrapSelectors: {
          getConfigs: (original, system) => (...args) => {
            const flow = system.specSelectors.specJson().getIn(["components", "securitySchemes", signIn, "flows", "authorizationCode"])
            return flow ? {
              clientId: flow.get("x-defaultClientId"),
              scopes: [...flow.get("scopes").keys()], // all are chosen
              usePkceWithAuthorizationCodeGrant: flow.get("x-usePkce"),
            } : original(...args)
          },
        },
        wrapActions: {
          // Without this header, the browser sends the request for the token without asking the provider
          // first whether it may send such a header.
          authorizeRequest: (original, { getConfigs }) => (...args) => {
            const { requestInterceptor } = getConfigs()
            getConfigs().requestInterceptor = (request) => {
              delete request.headers["X-Requested-With"]
              return requestInterceptor(request)
            }
            return original(...args)
          },
        },
      },
      err: {
        wrapActions: {
          newAuthErr: (original) => (error) => {
            const message = error.message.replaceAll("+", " ").replace(/[. ]*$/, ".") // a query has + for a space
            return original({ ...error, message: `${message} ${advise(message)}` })
          },
        },
      },
      spec: {
        wrapActions: {
          updateJsonSpec: (original) => (spec) => original(describeSignIn(removeStreams(spec))),
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

// Shows the OpenAPI document in Swagger UI, and adds the token from the form to its requests.

/* global SwaggerUIBundle */

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Swagger UI uses a class for the dark mode, not the preference of the system. */
function paint() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}
paint();
dark.addEventListener("change", paint);

/** Shown instead of the token in the requests of Swagger UI, because a screen may be shared. */
const TOKEN_PLACEHOLDER = "$TOKEN";
/** Its name in the document. */
const SCHEME = "token";

let token = "";

function insertToken(request) {
  const { headers } = request;
  if (headers.Authorization === `Bearer ${TOKEN_PLACEHOLDER}`)
    headers.Authorization = `Bearer ${token}`;
  return request;
}

/** Removes the token dialog of Swagger UI, which shows the token, and the button that turns "Try it out" off. */
function withoutExtraButtons() {
  const nothing = () => () => null;
  const names = ["authorizeBtn", "authorizeOperationBtn", "TryItOutButton"];
  return { wrapComponents: Object.fromEntries(names.map((name) => [name, nothing])) };
}

/** Shows error responses as one line each, which opens: there are up to ten of them. */
function withFoldedErrors({ React: { createElement, Fragment, useState } }) {
  const fold = (Response) => (props) => {
    const [open, setOpen] = useState(false);
    const { code, response } = props;
    if (!/^[45]/.test(code)) return createElement(Response, props);
    const button = createElement(
      "button",
      { className: "fold", "aria-expanded": open, onClick: () => setOpen(!open) },
      // A button cannot contain Markdown.
      response.get("description").replaceAll("`", ""),
    );
    const row = createElement(
      "tr",
      { className: "response folded" },
      createElement("td", { className: "response-col_status" }, code),
      createElement("td", { className: "response-col_description" }, button),
    );
    const details = open && createElement(Response, { ...props, className: "unfolded" });
    return createElement(Fragment, null, row, details);
  };
  return { wrapComponents: { response: fold } };
}

/** Leads to the token field if an operation needs a token and there is none. */
function withTokenCheck({ React: { createElement } }) {
  const check = (Execute) => (props) => {
    function onClickCapture(event) {
      const isPublic = props.operation.get("security")?.size === 0;
      if (token !== "" || isPublic) return;
      event.stopPropagation();
      say("Enter a token first: this operation needs one.", true);
      field.focus();
    }
    const wrapper = { className: "execute-check", onClickCapture };
    return createElement("div", wrapper, createElement(Execute, props));
  };
  return { wrapComponents: { execute: check } };
}

/** Shows the conventions of the API as one line, which opens, so that its operations come first. */
function withFoldedInfo({ React: { createElement } }) {
  const fold = (InfoContainer) => (props) =>
    createElement(
      "details",
      { className: "about" },
      createElement("summary", null, "Responses, errors, tokens, lists, retries"),
      createElement(InfoContainer, props),
    );
  return { wrapComponents: { InfoContainer: fold } };
}

/** @returns a command that takes the token from the environment, which a shell does not do within single quotes */
function curlCommand(request, generate) {
  const header = `Authorization: Bearer ${TOKEN_PLACEHOLDER}`;
  return generate(request).replace(`'${header}'`, `"${header}"`);
}

/** Shows the response before the command that repeats it, tells it from the example below, and scrolls to it once. */
function withAnswer({ fn, React: { createElement, useLayoutEffect, useRef } }) {
  let isNew = false;
  const setResponse =
    (original) =>
    (...given) => {
      isNew = true;
      return original(...given);
    };
  const answer = (LiveResponse) => (props) => {
    const { response, path, method, specSelectors, getComponent } = props;
    const section = useRef(null);
    useLayoutEffect(() => {
      if (!isNew) return;
      isNew = false;
      section.current.scrollIntoView({ block: "nearest" });
    }, [response]);
    const request = specSelectors.requestFor(path, method);
    const command = curlCommand(request, fn.requestSnippetGenerator_curl_bash);
    const isBad = response.get("status") >= 400;
    return createElement(
      "section",
      { className: isBad ? "answer bad" : "answer", ref: section },
      createElement(LiveResponse, props),
      createElement("h4", null, "Command"),
      createElement(
        getComponent("HighlightCode", true),
        { language: "bash", className: "curl", canCopy: true },
        command,
      ),
    );
  };
  return {
    statePlugins: { spec: { wrapActions: { setResponse } } },
    wrapComponents: { liveResponse: answer, curl: () => () => null },
  };
}

/** Without a component for the items of an array, Swagger UI warns and uses that of texts. */
function withIntegerItems({ React: { createElement } }) {
  const name = "JsonSchema_integer_int64";
  const item = (props) => createElement(props.getComponent("JsonSchema_string"), props);
  return { components: { [name]: item } };
}

/** Names the field of the body, for screen readers, and hides the patterns of header fields, which are described. */
function withReadableFields({ React: { createElement } }) {
  const withName = (TextArea) => (props) =>
    createElement(TextArea, { "aria-label": "Request body", ...props });
  const withoutPattern = (ParameterExt) => (props) =>
    props.xKey === "pattern" ? null : createElement(ParameterExt, props);
  return { wrapComponents: { TextArea: withName, ParameterExt: withoutPattern } };
}

const ui = SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#operations",
  deepLinking: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  // The bounds of parameters.
  showCommonExtensions: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  // Otherwise Swagger UI contacts validator.swagger.io, unless the host is localhost.
  validatorUrl: null,
  persistAuthorization: false,
  requestInterceptor: insertToken,
  showMutatedRequest: false,
  plugins: [
    withoutExtraButtons,
    withFoldedErrors,
    withTokenCheck,
    withFoldedInfo,
    withAnswer,
    withIntegerItems,
    withReadableFields,
  ],
});

const form = document.querySelector(".token");
const field = document.getElementById("token");
const forget = document.getElementById("token-forget");
const status = document.getElementById("token-status");
const initialStatus = status.textContent;

function say(text, isBad = false) {
  status.textContent = text;
  status.className = isBad ? "bad" : "";
}

/** @returns an error message; `null` if the token is valid */
async function problemWith(given) {
  // `fetch` throws if a header has other characters.
  if (!/^[\x21-\x7e]+$/.test(given)) return "This is not a token: it contains invalid characters.";
  const headers = { authorization: `Bearer ${given}` };
  const response = await fetch("users?limit=1", { headers }).catch(() => null);
  if (response === null) return "The server does not respond.";
  if (response.status >= 500) return "The server cannot check the token at the moment.";
  if (response.status === 401) return "The token is unknown, expired or revoked.";
  return null;
}

function forgetToken() {
  if (token === "") return;
  token = "";
  ui.authActions.logout([SCHEME]);
  forget.hidden = true;
}

/** How often a token has been given. A check that ends after a later one began has no effect. */
let attempts = 0;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  // A token that is rejected must not leave the previous one in use.
  forgetToken();
  attempts += 1;
  const attempt = attempts;
  // The value of the header is accepted as well.
  const given = field.value.trim().replace(/^Bearer\s+/i, "");
  say("Checking the token…");
  const problem = await problemWith(given);
  if (attempt !== attempts) return;
  if (problem !== null) return say(problem, true);
  if (ui.preauthorizeApiKey(SCHEME, TOKEN_PLACEHOLDER) === null)
    return say("The document is still loading.", true);
  token = given;
  field.value = "";
  forget.hidden = false;
  say("Used for all requests below, until you leave or reload the page.");
});

forget.addEventListener("click", () => {
  forgetToken();
  say(initialStatus);
  field.focus();
});

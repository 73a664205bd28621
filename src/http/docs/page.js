// Shows the document in Swagger UI, and lends it the token that is pasted into the head of the page.

/* global SwaggerUIBundle */

const BEFORE = "It stays in this page and is gone when you leave or reload it.";

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Swagger UI goes by a class, not by what the system prefers. */
function paint() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}
paint();
dark.addEventListener("change", paint);

/** What stands for the token wherever Swagger UI shows a request: pages are shown to others. */
const STANDS_FOR_TOKEN = "$TOKEN";

/** Empty for none. */
let token = "";

function lendToken(request) {
  const { headers } = request;
  if (headers.Authorization === `Bearer ${STANDS_FOR_TOKEN}`) {
    headers.Authorization = `Bearer ${token}`;
  }
  return request;
}

/** One way to give a token is enough: that of Swagger UI checks nothing, and shows it. */
function withoutPadlocks() {
  const nothing = () => () => null;
  return { wrapComponents: { authorizeBtn: nothing, authorizeOperationBtn: nothing } };
}

const ui = SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#reference",
  deepLinking: true,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  // Else it asks validator.swagger.io about documents of other hosts than localhost.
  validatorUrl: null,
  persistAuthorization: false,
  requestInterceptor: lendToken,
  showMutatedRequest: false,
  plugins: [withoutPadlocks],
});

const form = document.getElementById("token-form");
const field = document.getElementById("token");
const forget = document.getElementById("token-forget");
const status = document.getElementById("token-status");

function say(text, kind) {
  status.textContent = text;
  status.dataset.kind = kind;
}

/** @returns the name of the scheme in the document that takes a bearer token */
function schemeName() {
  const schemes = ui.specSelectors.specJson().toJS().components?.securitySchemes ?? {};
  return Object.keys(schemes).find((name) => schemes[name].scheme === "bearer");
}

/** @returns what is wrong with the token; `null` when nothing is */
async function problemWith(given) {
  // What a header cannot carry, fetch would throw at.
  if (!/^[\x21-\x7e]+$/.test(given)) return "That is no token: it has characters that none has.";
  const headers = { authorization: `Bearer ${given}` };
  const answer = await fetch("users?limit=1", { headers }).catch(() => null);
  if (answer === null) return "The service does not answer.";
  if (answer.status >= 500) return "The service cannot look at the token at the moment.";
  if (answer.status === 401) return "The service does not know this token, or it has expired.";
  return null;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  // As it stands in a header, too.
  const given = field.value.trim().replace(/^Bearer\s+/i, "");
  say("Asking the service …", "waiting");
  const problem = await problemWith(given);
  const name = schemeName();
  if (problem !== null || name === undefined) {
    say(problem ?? "The document is not there yet.", "bad");
    return;
  }
  token = given;
  ui.preauthorizeApiKey(name, STANDS_FOR_TOKEN);
  field.value = "";
  forget.hidden = false;
  say("In use for every request below, until you leave or reload this page.", "good");
});

forget.addEventListener("click", () => {
  token = "";
  ui.authActions.logout([schemeName()]);
  forget.hidden = true;
  say(BEFORE, "");
  field.focus();
});

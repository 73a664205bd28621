// Shows records by the API of this server. It only reads. The address has the view and its filters behind #.

const STATUSES = ["pending", "paid", "shipped", "delivered", "canceled"];
/** Currencies whose exponent in ISO 4217 is not 2. */
const EXPONENTS = {
  0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
  3: "BHD IQD JOD KWD LYD OMR TND",
  4: "CLF UYW",
};
const [login, nav, forget, status, view] = ["login", "nav", "forget", "status", "view"].map((id) =>
  document.getElementById(id),
);
const [SVG, HTML] = ["http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"];
/** What the token may read. */
let readable = { orders: false, users: false };
/** Ends the requests of the view that was shown before. */
let shown = new AbortController();

/** @param children elements, lists of them, and texts, which are only texts */
function make(name, attributes, ...children) {
  const isDrawn = ["svg", "rect", "title"].includes(name);
  const element = document.createElementNS(isDrawn ? SVG : HTML, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.flat());
  return element;
}

function say(text, isBad = false) {
  status.textContent = text;
  status.className = isBad ? "bad" : "";
}

function explain(error) {
  if (error.name === "AbortError") return;
  say("code" in error ? error.message : "The server does not respond.", true);
}

function showForm(isShown) {
  login.hidden = !isShown;
  nav.hidden = isShown;
  forget.hidden = isShown;
}

function askForToken(message = "") {
  sessionStorage.removeItem("token");
  shown.abort();
  view.replaceChildren();
  showForm(true);
  say(message, true);
  login.elements.token.focus();
}

/** @returns the body, and the parameters of its links by their relation */
async function get(path, isRepeated = false) {
  const { signal } = shown;
  const headers = { authorization: `Bearer ${sessionStorage.getItem("token")}` };
  // The API takes a plus sign as itself.
  const response = await fetch(path.replaceAll("+", "%20"), { headers, signal });
  const [code, text] = [response.status, await response.text()];
  signal.throwIfAborted();
  if (code === 401) askForToken("The token is unknown, expired or revoked.");
  signal.throwIfAborted();
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  const body = isJson ? JSON.parse(text) : { error: text };
  // Another sum of this token may still run.
  if (code === 503 && !isRepeated) {
    const waitMs = 1000 * response.headers.get("retry-after");
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    signal.throwIfAborted();
    return get(path, true);
  }
  if (!response.ok) throw Object.assign(new Error(`${body.error} (${code})`), { code });
  const all = (response.headers.get("link") ?? "").matchAll(/<[^?>]*\?([^>]+)>; rel="(\w+)"/g);
  return { ...body, links: new Map(Array.from(all, ([, query, rel]) => [rel, query])) };
}

/** Exact: it is formatted as a decimal number in text. */
function moneyOf(amount, currency) {
  const [exponent = 2] = Object.keys(EXPONENTS).filter((key) => EXPONENTS[key].includes(currency));
  const digits = String(Math.abs(amount)).padStart(Number(exponent) + 1, "0");
  const end = digits.length - exponent;
  const decimal = `${amount < 0 ? "-" : ""}${digits.slice(0, end)}.${digits.slice(end)}`;
  const format = { minimumFractionDigits: exponent, maximumFractionDigits: exponent };
  return `${new Intl.NumberFormat(undefined, format).format(decimal)} ${currency}`;
}

/** Fields in the order of the columns. */
const columns = {
  orders: ["id", "created_at", "status", "user_id", "reference", "items", "total", "refunded"],
  users: ["id", "created_at", "email", "name", "reference"],
  items: ["sku", "name", "quantity", "unit_price"],
  changes: ["created_at", "type", "fields", "status", "version", "token"],
  sums: ["from", "to", "status", "orders", "total", "refunded"],
};
const NUMBERS = ["items", "total", "refunded", "quantity", "unit_price", "version", "orders"];
const classOf = (name) => (NUMBERS.includes(name) ? "number" : "");

/** @returns a text, or an element, for the value of a field */
function cellOf(name, record, kind) {
  const value = record[name];
  if (value === null || value === undefined) return "";
  if (/_at$|^from$|^to$/.test(name))
    return make("time", { datetime: value, title: value }, new Date(value).toLocaleString());
  if (/^(total|refunded|unit_price)$/.test(name)) return moneyOf(value, record.currency);
  const linked = { id: kind, user_id: "users" }[name];
  if (readable[linked]) return make("a", { href: `#/${linked}/${value}` }, value);
  if (name === "items") return value.length;
  return Array.isArray(value) ? value.join(", ") : value;
}

const labelOf = (name) => name.replaceAll("_", " ");

function tableOf(caption, kind, records) {
  const head = columns[kind].map((name) => make("th", { scope: "col" }, labelOf(name)));
  const rows = records.map((record) => {
    const cell = (name) => make("td", { class: classOf(name) }, cellOf(name, record, kind));
    return make("tr", {}, columns[kind].map(cell));
  });
  const parts = [make("caption", {}, caption), make("thead", {}, make("tr", {}, head))];
  const table = make("table", {}, parts, make("tbody", {}, rows));
  const scrolled = { class: "scroll", tabindex: 0, role: "region", "aria-label": caption };
  return make("div", scrolled, table);
}

function fieldsOf(record, read = (name) => cellOf(name, record)) {
  const rows = Object.keys(record).map((name) => [
    make("dt", {}, name),
    make("dd", {}, read(name)),
  ]);
  return make("dl", {}, rows.flat());
}

const filters = {
  users: ["email", "reference", "id", "sort"],
  orders: [...STATUSES, "created_from", "created_to", "user_id", "reference", "id", "sort"],
  sums: ["created_from", "created_to", "interval", "time_zone"],
};
const choices = {
  sort: { "-id": "highest id first", id: "lowest id first" },
  interval: { day: "days", month: "months" },
};

function inputOf(name, params) {
  const given = params.get(name) ?? "";
  const input = make(name in choices ? "select" : "input", { name });
  for (const [value, text] of Object.entries(choices[name] ?? {}))
    input.append(make("option", { value }, text));
  if (!(name in choices) || given !== "") input.value = given;
  if (STATUSES.includes(name)) {
    Object.assign(input, { type: "checkbox", name: "status", value: name });
    input.checked = (params.get("status") ?? "").split(",").includes(name);
  } else if (name.startsWith("created_")) {
    Object.assign(input, { type: "datetime-local", step: "0.001" });
    // In the time zone of the browser. Parameters are in UTC.
    const local = Date.parse(given) - new Date(given).getTimezoneOffset() * 60_000;
    if (!Number.isNaN(local)) input.value = new Date(local).toISOString().slice(0, -1);
  }
  return make("label", {}, labelOf(name), input);
}

function formOf(kind, params) {
  const inputs = filters[kind].map((name) => inputOf(name, params));
  const form = make("form", {}, inputs, make("button", {}, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const query = new URLSearchParams();
    for (const [name, text] of new FormData(form)) {
      if (text.trim() === "") continue;
      const value = name.startsWith("created_") ? new Date(text).toISOString() : text.trim();
      query.set(name, query.has(name) ? `${query.get(name)},${value}` : value);
    }
    const hash = `#/${kind}?${query}`;
    if (location.hash === hash) void show();
    else location.hash = hash;
  });
  return form;
}

/** @returns links to other pages, as the server names them */
function pagesOf(path, links) {
  const names = Object.entries({ first: "First", prev: "Previous", next: "Next", last: "Last" });
  const there = names.filter(([rel]) => links.has(rel));
  const all = there.map(([rel, text]) => make("a", { href: `#/${path}?${links.get(rel)}` }, text));
  return make("nav", { "aria-label": "Pages" }, all);
}

async function showList(kind, params) {
  if (!params.has("sort")) params.set("sort", "-id");
  view.replaceChildren(formOf(kind, params));
  const { data, meta, links } = await get(`${kind}?${params}`);
  const rows = data.length > 0 && !params.has("after");
  const where = rows ? `, ${meta.offset + 1} to ${meta.offset + data.length}` : "";
  return [tableOf(`${meta.total} ${kind}${where}`, kind, data), pagesOf(kind, links)];
}

/** A record and its history. A deleted user has only that. */
async function showRecord(kind, params, id) {
  const path = `${kind}/${encodeURIComponent(id)}`;
  const whenDeleted = (error) => {
    if (kind === "users" && error.code === 404) return { data: null };
    throw error;
  };
  const [{ data }, history] = await Promise.all([
    get(path).catch(whenDeleted),
    get(`${path}/changes?${params.size === 0 ? "sort=-id" : params}`),
  ]);
  const { metadata, items = [], ...fields } = data ?? {};
  const priced = items.map((item) => ({ ...item, currency: fields.currency }));
  const orders = make("a", { href: `#/orders?user_id=${id}` }, "Orders of this user");
  return [
    data === null ? "This user was deleted." : fieldsOf(fields),
    kind === "users" && readable.orders ? orders : "",
    kind === "orders" ? tableOf(`Items: ${items.length}`, "items", priced) : "",
    make("h3", {}, "Metadata"),
    fieldsOf(metadata ?? {}, (name) => metadata[name]),
    tableOf(`History: ${history.meta.total}`, "changes", history.data),
    pagesOf(path, history.links),
  ];
}

const WIDTH = 1000;
const HEIGHT = 180;

/** A bar for each interval, as wide as it is long. Canceled orders do not count. @param sums of one currency */
function plot(currency, sums, [start, end]) {
  const counted = sums.filter(({ status }) => status !== "canceled");
  const bars = Map.groupBy(counted, ({ from, to }) => `${from} ${to}`);
  const totals = Array.from(bars.values(), (all) => all.reduce((sum, { total }) => sum + total, 0));
  const highest = Math.max(1, ...totals);
  const x = (time) => ((Date.parse(time) - start) / (end - start)) * WIDTH;
  const drawn = Array.from(bars.keys(), (key, index) => {
    const [from, to] = key.split(" ");
    const height = (totals[index] / highest) * HEIGHT;
    const place = { x: x(from), y: HEIGHT - height, width: 0.9 * (x(to) - x(from)), height };
    const words = `${new Date(from).toLocaleString()}: ${moneyOf(totals[index], currency)}`;
    return make("rect", place, make("title", {}, words));
  });
  const label = `Totals in ${currency} without canceled orders. The highest is ${moneyOf(highest, currency)}`;
  const frame = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label };
  return [make("p", {}, `${label}:`), make("svg", frame, drawn)];
}

async function showSums(_, given) {
  // Thirty days, of which the last one is today.
  const date = new Date();
  const midnight = (days) => new Date(date.getFullYear(), date.getMonth(), date.getDate() + days);
  const params = new URLSearchParams({
    created_from: midnight(-29).toISOString(),
    created_to: midnight(1).toISOString(),
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    ...Object.fromEntries(given),
  });
  view.replaceChildren(formOf("sums", params));
  const { data } = await get(`orders/sums?${params}`);
  const range = ["created_from", "created_to"].map((name) => Date.parse(params.get(name)));
  if (data.length === 0) return ["There are no orders in this time."];
  return [...Map.groupBy(data, ({ currency }) => currency)].flatMap(([currency, sums]) => [
    ...plot(currency, sums, range),
    tableOf(`Sums in ${currency}`, "sums", sums),
  ]);
}

/** Shows what the address names. */
async function show() {
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  const [path, query] = location.hash.slice(2).split("?");
  const [named, id] = path.split("/");
  const views = { sums: showSums, users: showList, orders: showList };
  const usual = readable.orders ? "orders" : "users";
  const kind = Object.hasOwn(views, named) ? named : usual;
  for (const link of nav.children) {
    link.removeAttribute("aria-current");
    if (link.hash === `#/${kind}`) link.setAttribute("aria-current", "page");
  }
  const heading = make(
    "h2",
    { tabindex: -1 },
    id === undefined ? kind : `${kind.slice(0, -1)} ${id}`,
  );
  document.title = `${heading.textContent} · user-api`;
  say("Loading…");
  view.replaceChildren();
  try {
    const work = id === undefined ? views[kind] : showRecord;
    const parts = await work(kind, new URLSearchParams(query), id);
    if (signal.aborted) return;
    say("");
    view.prepend(heading);
    view.append(...parts);
    heading.focus({ preventScroll: true });
  } catch (error) {
    if (!signal.aborted) explain(error);
  }
}

/** Whether the token may read records of a kind: the server answers 403 where it may not. */
async function mayRead(kind) {
  try {
    await get(`${kind}?limit=1`);
    return true;
  } catch (error) {
    if (error.code === 403) return false;
    throw error;
  }
}

async function start() {
  say("Checking the token…");
  try {
    const [orders, users] = await Promise.all(["orders", "users"].map(mayRead));
    if (!orders && !users) return askForToken("This token may read neither orders nor users.");
    readable = { orders, users };
    login.reset();
    showForm(false);
    for (const link of nav.children) link.hidden = !readable[link.dataset.kind];
    await show();
  } catch (error) {
    showForm(true);
    explain(error);
  }
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  const token = login.elements.token.value.trim().replace(/^Bearer\s+/i, "");
  // `fetch` throws if a header has other characters.
  if (!/^[\x21-\x7e]+$/.test(token)) return say("A token has no such characters.", true);
  sessionStorage.setItem("token", token);
  shown = new AbortController();
  void start();
});
forget.addEventListener("click", () => askForToken());
addEventListener("hashchange", () => login.hidden && show());
// The link's address would replace that of the view.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.querySelector("main").focus();
});
if (sessionStorage.getItem("token") === null) askForToken();
else void start();

// A client to start from, without packages, for Bun and Node 22.18: see docs/clients.md. Its types are those of a server:
// npx openapi-typescript http://127.0.0.1:3000/api/v1/openapi.json --output user-api.d.ts
import { setTimeout as sleep } from "node:timers/promises";
import type { components, operations } from "./user-api.d.ts";

type Schemas = components["schemas"];
type QueryOf<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;
export type User = Schemas["User"];
export type Order = Schemas["Order"];
export type Problem = Schemas["FieldError"];
/** Store its position when the change is applied. */
export type Change = Schemas["Change"] & { readonly position: string };

type Received = Pick<Response, "status" | "headers"> & { readonly text: string };

interface Options {
  readonly body?: object;
  /** Idempotency key. The same key in a later run of the program returns the first response. Default: a random one. */
  readonly key?: string | undefined;
  readonly ifMatch?: string;
  readonly attempts?: number;
}

/** The waits between them take 45 s, or longer if the server asks for it. */
const ATTEMPTS = 10;
const FOR_EVER = { attempts: Number.POSITIVE_INFINITY };
/** Longer than the server waits for a change. */
const TIMEOUT_MS = 90_000;
const REPEATED = [429, 502, 503, 504];
/** Of the errors in plain text. */
const CODES: Readonly<Record<number, string>> = {
  400: "validation_failed",
  401: "unauthorised",
  404: "not_found",
  500: "internal",
};

// biome-ignore lint/suspicious/noExplicitAny: the envelope, which has the type of its route
function parse(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A response that is an error, after the last attempt if the request could be repeated. */
export class ApiError extends Error {
  readonly status: number;
  /** For programs: docs/api.md lists them. */
  readonly code: string;
  readonly problems: readonly Problem[];
  /** What is allowed instead, such as the statuses that can follow. */
  readonly allowed: unknown;
  /** The log of the server has it. */
  readonly requestId: string | null;

  constructor(request: string, { status, headers, text }: Received) {
    const { error = text.slice(0, 200), meta = {} } = parse(text) ?? {};
    super(`${request}: ${status} ${error}`);
    this.status = status;
    this.code = meta?.code ?? CODES[status] ?? "unknown";
    this.problems = meta?.problems ?? [];
    this.allowed = meta?.allowed ?? null;
    this.requestId = headers.get("x-request-id");
  }
}

/** Twice as long after each attempt, at most 8 s, or as long as the server asks for, but at most a minute. */
function waitMs(attempt: number, headers?: Headers): number {
  const asked = Number(headers?.get("retry-after")) || 0;
  const seconds = Math.max(Math.min(asked, 60), 2 ** Math.min(attempt - 3, 3));
  return seconds * (1 + Math.random() / 4) * 1000;
}

function queryOf(query: object): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${name}=${encodeURIComponent(`${value}`)}`).join("&");
}

export class Client {
  readonly #url: string;
  readonly #token: string;

  constructor(url: string, token: string) {
    this.#url = url.replace(/\/$/, "");
    this.#token = token;
  }

  /** Reads the body as well: the connection can break in the middle of it. */
  async #send(path: string, init: RequestInit): Promise<Received> {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const response = await fetch(this.#url + path, { ...init, redirect: "manual", signal });
    return { status: response.status, headers: response.headers, text: await response.text() };
  }

  /** Sends a request until there is a complete response. @throws {ApiError} */
  async request<Data>(method: string, path: string, options: Options = {}) {
    const { body, key = crypto.randomUUID(), ifMatch, attempts = ATTEMPTS } = options;
    const headers = new Headers({ authorization: `Bearer ${this.#token}` });
    if (method !== "GET") headers.set("idempotency-key", key);
    if (body !== undefined) headers.set("content-type", "application/json");
    if (ifMatch !== undefined) headers.set("if-match", ifMatch);
    const init = { method, headers, body: body === undefined ? null : JSON.stringify(body) };
    for (let attempt = 1; ; attempt += 1) {
      const isLast = attempt >= attempts;
      const response = await this.#send(path, init).catch((error: unknown) => {
        if (isLast) throw error;
      });
      if (response && (isLast || !REPEATED.includes(response.status))) {
        const { data = null, meta } = parse(response.text) ?? {};
        if (data === null) throw new ApiError(`${method} ${path}`, response);
        const [, next = ""] =
          /<([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "") ?? [];
        return { data: data as Data, meta, etag: response.headers.get("etag") ?? "", next };
      }
      await sleep(waitMs(attempt, response?.headers));
    }
  }

  /** The pages of a list, and of the changes, which have no last one. */
  async *#pages<Data>(first: string, options: Options = {}): AsyncGenerator<Data[]> {
    for (let path = first; path !== ""; ) {
      const page = await this.request<Data[]>("GET", path, options);
      yield page.data;
      path = page.next;
    }
  }

  async *#list<Data>(path: string, query: object): AsyncGenerator<Data> {
    const first = `${path}?${queryOf({ limit: 50, after: 0, ...query })}`;
    for await (const page of this.#pages<Data>(first)) yield* page;
  }

  /** Edits a record as it is, again if another client was faster. */
  async #edit<Data>(path: string, change: (record: Data) => object): Promise<Data> {
    for (;;) {
      const { data, etag } = await this.request<Data>("GET", path);
      try {
        const options = { body: change(data), ifMatch: etag };
        return (await this.request<Data>("PATCH", path, options)).data;
      } catch (error) {
        if (!(error instanceof ApiError && error.code === "version_mismatch")) throw error;
      }
    }
  }

  /** All users that match, page after page. */
  users = (query: Omit<QueryOf<"listUsers">, "offset"> = {}) =>
    this.#list<User>("/api/v1/users", query);
  orders = (query: Omit<QueryOf<"listOrders">, "offset"> = {}) =>
    this.#list<Order>("/api/v1/orders", query);

  async user(id: number): Promise<User> {
    return (await this.request<User>("GET", `/api/v1/users/${id}`)).data;
  }
  async order(id: number): Promise<Order> {
    return (await this.request<Order>("GET", `/api/v1/orders/${id}`)).data;
  }

  /** Creates a user once for each key. */
  async createUser(body: Schemas["UserInput"], key?: string): Promise<User> {
    return (await this.request<User>("POST", "/api/v1/users", { body, key })).data;
  }
  async createOrder(body: Schemas["OrderInput"], key?: string): Promise<Order> {
    return (await this.request<Order>("POST", "/api/v1/orders", { body, key })).data;
  }

  /** @param change returns what to change */
  editUser(id: number, change: (user: User) => Schemas["UserPatch"]): Promise<User> {
    return this.#edit(`/api/v1/users/${id}`, change);
  }
  editOrder(id: number, change: (order: Order) => Schemas["OrderPatch"]): Promise<Order> {
    return this.#edit(`/api/v1/orders/${id}`, change);
  }

  /** @returns the newest change: those after it are later ones */
  async position(): Promise<string> {
    const { meta } = await this.request("GET", "/api/v1/changes?limit=1");
    return `${meta.feed}-${meta.last}`;
  }

  /**
   * All changes after a position, and those to come. It waits for them, also while there is no server.
   * @throws {ApiError} changes_expired or changes_reset if changes are gone: read all users and orders again
   */
  async *changes(position: string): AsyncGenerator<Change> {
    const [feed, after] = position.split("-");
    const query = queryOf({ after, feed, limit: 50, include: "record", wait: 50 });
    for await (const page of this.#pages<Change>(`/api/v1/changes?${query}`, FOR_EVER))
      for (const change of page) yield { ...change, position: `${feed}-${change.id}` };
  }
}

import { type ErrorCode, fail } from "../../base/error.ts";
import { andThen } from "../../base/maybe-promise.ts";
import { Change, type ChangePage, ChangeQuery, Feed, startOf } from "../../domain/change.ts";
import { PageQuery, pageOffsets } from "../../domain/page.ts";
import type { JsonText, RecordTable } from "../../domain/record.ts";
import type { Call } from "../input/call.ts";
import type { InputSchema } from "../input/input.ts";
import { querySchema } from "../input/query.ts";
import { pageDoc } from "../openapi/detail.ts";
import type { JsonBlob, PageEnvelope } from "../output/bodies.ts";
import { pageBody, pageLinker, recordsBody } from "../output/bodies.ts";
import { route, routesAt } from "./route.ts";
import type { Services } from "./services.ts";

const changesPath = "/api/v1/changes";

export function changes() {
  return routesAt(changesPath, "changes").get("", ...listChanges);
}

type ChangesEnvelope = PageEnvelope<Change> & { readonly meta: Feed };

const example: Change = {
  id: 2,
  type: "order.updated",
  record_id: 1,
  version: 2,
  status: "paid",
  token: "first",
  created_at: "2026-11-20T18:57:03.120Z",
  fields: ["status"],
};
const userExample: Change = { ...example, type: "user.updated", status: null, fields: ["name"] };

function isEmpty(query: ChangeQuery, page: ChangePage): boolean {
  return startOf(query, page) >= page.last;
}

/** @throws {AppError} unavailable if too many clients wait; invalid_token if the token is not valid any more */
async function waitForChanges(
  seconds: number,
  call: Call<ChangeQuery>,
  services: Services,
): Promise<JsonText<ChangesEnvelope> | JsonBlob<ChangesEnvelope>> {
  const { request, head, query, token } = call;
  const { authenticate, connections, responseMemory, waitingClients } = services;
  const startedMs = performance.now();
  const authorization = request.headers.get("authorization") ?? "";
  using client = waitingClients.begin(token.hash, seconds, request.signal);
  connections.keepOpen(request, seconds);
  const make = async () => {
    const page = await services.store.changes.list(query, token.hash, responseMemory);
    // One `Blob` for all that share it, because Bun copies text for each response.
    const body = new Blob([changesBody(call, page)]);
    return { isEmpty: isEmpty(query, page), link: head.headers["link"], body };
  };
  try {
    let page = await make();
    while (page.isEmpty) {
      if (!(await client.next(() => authenticate(authorization)))) break;
      // The first time even without a change: what was committed before the subscription began is not reported.
      page = await waitingClients.share(token.hash, JSON.stringify(query), make);
    }
    Object.assign(head.headers, { link: page.link });
    return page.body;
  } finally {
    call.waitedMs = performance.now() - startedMs;
  }
}

/** The link to the next page names the feed, so that a client misses no change. It exists also if there is none yet. */
function linksOf(query: ChangeQuery, page: ChangePage): string {
  const { limit, offset, after, wait, include } = query;
  const { first, last, feed, total } = page;
  const link = pageLinker(changesPath, limit, { include, wait: wait || undefined });
  const continued = (rel: string, id: number) => link(rel, `after=${id}&feed=${feed}`);
  const next = continued("next", Math.min(startOf(query, page) + limit, last));
  if (after !== undefined) return `${continued("first", first - 1)}, ${next}`;
  const { prev, last: lastOffset } = pageOffsets({ limit, offset }, total);
  const before = prev === null ? "" : `, ${link("prev", `offset=${prev}`)}`;
  return `${link("first", "offset=0")}${before}, ${next}, ${link("last", `offset=${lastOffset}`)}`;
}

function changesBody({ head, query }: Call<ChangeQuery>, page: ChangePage) {
  const { total, first, last, feed } = page;
  const { limit, offset } = query;
  const meta = JSON.stringify({ total, limit, offset, first, last, feed });
  return recordsBody<ChangesEnvelope>(head, linksOf(query, page), page.records, meta);
}

const listChanges = route(
  {
    scopes: ["users:read", "orders:read"],
    query: querySchema(ChangeQuery),
    operationId: "listChanges",
    summary: "List changes of users and orders",
    description:
      "Each change, once, in the order of commits, with consecutive ids. To follow all changes, read `meta.last` and " +
      '`meta.feed`, then the lists, then the changes after `last`, and then always the `Link` with `rel="next"`. ' +
      "A 410 means that changes are missing: start again. Apply a change only if its `version` is newer than yours.",
    response: pageDoc(Change, example, {
      properties: Feed.properties,
      example: { first: 1, last: 1, feed: "5fd3c08b2a91e7746c1d" },
    }),
    errors: ["changes_expired", "changes_reset"],
  },
  (call, services) => {
    const { query, token } = call;
    const { store, responseMemory } = services;
    return andThen(store.changes.list(query, token.hash, responseMemory), (page) =>
      query.wait && isEmpty(query, page)
        ? waitForChanges(query.wait, call, services)
        : changesBody(call, page),
    );
  },
);

/** The history of one record. @param errors the first one is that of a record that does not exist */
export function listChangesOf<const Code extends ErrorCode>(
  table: RecordTable,
  params: InputSchema<{ readonly id: number }>,
  ...errors: readonly [Code, ...Code[]]
) {
  const [noun, one] = table === "users" ? ["User", userExample] : ["Order", example];
  return route(
    {
      scopes: [`${table}:read`],
      params,
      query: querySchema(PageQuery),
      operationId: `listChangesOf${noun}`,
      summary: `List the changes of one ${noun.toLowerCase()}`,
      description: "Who changed which fields, and when. Changes stay when a user is deleted.",
      response: pageDoc(Change, one),
      errors,
    },
    ({ head, query, params: { id }, token }, { store, responseMemory }) => {
      const path = `/api/v1/${table}/${id}/changes`;
      const found = store.changes.listOf({ ...query, table, id }, token.hash, responseMemory);
      return andThen(found, (page) =>
        andThen(page.total > 0 || store[table].get(id, token.hash), (isFound) =>
          isFound ? pageBody<Change>(head, path, query, page) : fail(errors[0]),
        ),
      );
    },
  );
}

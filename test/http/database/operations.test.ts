// What all routes have: the statuses that the document names, metrics, and exact integers.
import { expect, test } from "bun:test";
import { againstPostgres, setLastId } from "../backend.ts";
import { exercise, operations } from "../exercise.ts";
import { expectError, metricsIn, newOrder, newUser, orderText, send } from "../make.ts";
import { startServer } from "../server.ts";

/** A client cannot cause these. Other tests cover them. */
const NOT_AT_WILL = new Set([500, 503]);

test("every operation returns each documented status and each code of a conflict, and no others", async () => {
  // `call` throws if a response is not as documented.
  const seen = new Set(await exercise());
  const documented = operations().flatMap(({ operation, statuses, conflicts }) => [
    ...conflicts.map((code) => `${operation} 409 ${code}`),
    ...[...statuses]
      .filter((status) => status !== 409 && !NOT_AT_WILL.has(status))
      .map((status) => `${operation} ${status}`),
  ]);
  expect([...seen].sort()).toEqual(documented.sort());
});

test("GET /metrics counts requests by route and status, and commits", async () => {
  await using server = await startServer();
  const user = await newUser(server);
  for (let round = 0; round < 3; round += 1) await server.call("GET", `/users/${user.id}`);
  await server.call("GET", "/users/999999");
  await server.call("GET", "/nope?secret=1");
  await server.call("GET", "/users", { token: null });
  const read = { token: server.readToken };
  const { status, headers, text } = await server.call("GET", "/metrics", read);
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  const metrics = metricsIn(text);
  const requests = (route: string, code: number, method = "GET") =>
    metrics.get(`http_requests_total{method="${method}",route="${route}",status="${code}"}`);
  expect(requests("/api/v1/users/:id", 200)).toBe(3);
  expect(requests("/api/v1/users/:id", 404)).toBe(1);
  expect(requests("/api/v1/users", 201, "POST")).toBe(1);
  expect(requests("/api/v1/users", 401)).toBe(1);
  expect(requests("/*", 404)).toBe(1);
  expect(metrics.get("user_api_commit_batch_size_count")).toBeGreaterThan(0);
  expect(metrics.get("user_api_commit_duration_seconds_count")).toBeGreaterThan(0);
  expect(metrics.get("user_api_pending_writes")).toBe(0);
  expect(metrics.get("user_api_database_bytes")).toBeGreaterThan(4096);
  // The log of PostgreSQL is not counted.
  expect(Number(metrics.get("user_api_wal_bytes")) > 0).toBe(!againstPostgres);
  expect(metrics.get("process_resident_memory_bytes")).toBeGreaterThan(1e6);
  expect(metrics.get("process_cpu_seconds_total")).toBeGreaterThan(0);
  expect(metrics.get("process_start_time_seconds")).toBeWithin(1.7e9, Date.now() / 1000 + 2);
  expect(text).toMatch(/^user_api_build_info\{version="[^"]+",commit="[^"]+",schema="\d+"\} 1$/m);
  expect(text).not.toContain("secret");
});

test("ids and amounts stay exact from 2^51 to 2^53 − 1", async () => {
  await using own = await startServer();
  await newOrder(own, (await newUser(own)).id);
  // From 2^51, bun:sqlite may bind a number as REAL; 2^53 − 1 is the largest integer of the API.
  for (const edge of ["2251799813685249", "4503599627370497", "9007199254740991"]) {
    await own.stop();
    for (const table of ["users", "orders"] as const) {
      await setLastId(own.database, table, BigInt(edge) - 1n);
    }
    await own.restart();
    const user = await newUser(own, { name: "at the edge" });
    expect(`${user.id}`).toBe(edge);
    const raw = orderText(edge, `1 × ${edge}`);
    const order = await send(own, "POST", "/orders", raw);
    expect(order.status, order.text).toBe(201);
    expect(order.headers.get("location")).toBe(`/api/v1/orders/${edge}`);
    for (const path of [`/orders/${edge}`, `/orders?user_id=${edge}`]) {
      const { text } = await own.call("GET", path);
      for (const field of ["id", "user_id", "unit_price", "total"])
        expect(text).toContain(`"${field}":${edge}`);
    }
    expect((await own.call("GET", `/users/${edge}`)).json.data).toEqual(user);
    expectError(await own.call("DELETE", `/users/${edge}`), 409, "user has orders");
    const patched = await own.call("PATCH", `/users/${edge}`, { body: { name: null } });
    expect(patched.json.data).toMatchObject({ id: user.id, name: null, version: 2 });
  }
});

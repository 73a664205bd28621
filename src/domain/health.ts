import { type Static, Type } from "@sinclair/typebox";
import { AppError, fail } from "../base/error.ts";
import { Closed, OneOf, Parameter, SafeInteger, Text } from "../base/schema.ts";
import type { Store } from "./store.ts";

const seconds = Type.Number({ minimum: 0 });

export const Health = Type.Object({
  status: OneOf(["ok", "read_only", "standby", "live"]),
  seconds_behind: Type.Optional(seconds),
  waiting: Type.Optional(Type.String()),
  /** How far it is behind. Clients see no error of the storage. */
  archive: Type.Optional(Type.Object({ seconds_behind: seconds, bytes_behind: SafeInteger(0) })),
});
export type Health = Static<typeof Health>;

/** Has no value: `?live` is the same as `?live=`. */
const flag = Text({ maxLength: 0 });

export const HealthQuery = Closed({
  live: Parameter(
    flag,
    "Only whether the process runs, also while it shuts down: for a probe that restarts it. The status is `live`",
  ),
  primary: Parameter(
    flag,
    "Only a server that acknowledges writes is healthy. Cannot be combined with `live`",
  ),
});

/** Cause of an error that a standby returns as usual: it is not logged as a problem. */
export const NOT_PRIMARY = "not primary";

export function failNotPrimary(): never {
  throw new AppError("unavailable", "the server is not the primary", { cause: NOT_PRIMARY });
}

const MAX_SECONDS_BEHIND = 60;

/** @returns as `Store.secondsBehind`. @throws {AppError} unavailable if it is too old: tokens may have been revoked since */
export function requireRecent(
  { secondsBehind }: Pick<Store, "secondsBehind">,
  waitsFor: string | null = null,
): number | null {
  const seconds = secondsBehind();
  const reason = waitsFor === null ? "" : `: the server waits for ${waitsFor}`;
  if (seconds !== null && seconds > MAX_SECONDS_BEHIND)
    fail("unavailable", `the data may be more than ${MAX_SECONDS_BEHIND} s old${reason}`);
  return seconds;
}

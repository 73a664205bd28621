import { Type } from "@sinclair/typebox";
import { AppError } from "../base/error.ts";
import {
  noExtraFields,
  OneOf,
  Parameter,
  SafeInteger,
  Text,
  type ValueOf,
} from "../base/schema.ts";

const seconds = Type.Number({ minimum: 0 });

export const Health = Type.Object({
  status: OneOf(["ok", "read_only", "standby", "live"]),
  seconds_behind: Type.Optional(seconds),
  waiting: Type.Optional(Type.String()),
  /** How far it is behind. Clients see no error of the storage. */
  archive: Type.Optional(Type.Object({ seconds_behind: seconds, bytes_behind: SafeInteger(0) })),
});
export type Health = ValueOf<typeof Health>;

/** Has no value: `?live` is the same as `?live=`. */
const flag = Text({ maxLength: 0 });

export const HealthQuery = Type.Object(
  {
    live: Parameter(
      flag,
      "Only whether the process runs, also while it shuts down: for a probe that restarts it. The status is `live`",
    ),
    primary: Parameter(
      flag,
      "Only a server that acknowledges writes is healthy. Cannot be combined with `live`",
    ),
  },
  noExtraFields,
);

/** Cause of an error that a standby returns as usual: it is not logged as a problem. */
export const NOT_PRIMARY = "not primary";

/** @throws {AppError} unavailable */
export function failNotPrimary(): never {
  throw new AppError("unavailable", "the server is not the primary", { cause: NOT_PRIMARY });
}

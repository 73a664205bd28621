/** What is asked of a server's health. */
import { Type } from "@sinclair/typebox";
import { noExtraFields, Parameter, Text } from "../base/schema.ts";

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

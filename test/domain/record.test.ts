import { expect, test } from "bun:test";
import { firstVersion, parseRecordText, recordText } from "../../src/domain/record.ts";
import { userJson } from "../../src/domain/user.ts";

const time = "2026-11-20T18:57:03.120Z";

test("parseRecordText returns the same record when it was stored as text", () => {
  const fields = { email: "a@b.cd", name: null, metadata: '{"__proto__":"x"}' };
  const record = recordText({ ...firstVersion(7, fields, time), version: 3 }, userJson);
  expect(record).toMatchObject({ id: 7, version: 3 });
  expect(parseRecordText(record.json)).toEqual(record);
});

// Texts of 1 MB. A linear parser reads each in less than a second, a quadratic one in many minutes, in which it blocks
// its thread. So another process parses them, and is killed if it hangs.
import { expect, test } from "bun:test";

const SIZE = 2 ** 20;
const KILL_AFTER_MS = 60_000;
const fill = (text: string) => text.repeat(Math.floor(SIZE / text.length));

const names = Array.from({ length: 100_000 }, (_, at) => `"${at}":1`).join(",");

const jsonTexts = [
  ...['"', " ", "["].map(fill),
  `[1.${fill("0")}1]`,
  `"${fill("\\")}`,
  `"${fill("\\u0061")}"`,
  `["${"a".repeat(SIZE / 2)}"${":".repeat(SIZE / 2)}`,
  `{"${"\\u0061".repeat(SIZE / 12)}"${":".repeat(SIZE / 2)}`,
  // Many names, one of them twice.
  `{${names},"0":1}`,
  `[1${"0".repeat(SIZE / 2)}1e-${SIZE / 2}]`,
  `1e${fill("9")}`,
];

const emails = [
  ...["a", "é"].map(fill),
  `${fill("a.")}@b`,
  `a@${fill("b.")}`,
  `a@${fill("b.")}-`,
  `a@${"b".repeat(SIZE / 2)}.${"-".repeat(SIZE / 2)}`,
];

test.each([
  ["parseJson", "json.ts", jsonTexts],
  ["isEmail", "email.ts", emails],
] as const)(
  "%s parses or rejects a long text in linear time",
  async (parse, module, texts) => {
    const script = `
      import { ${parse} } from "${import.meta.dir}/../../src/base/${module}";
      for (const text of JSON.parse(await Bun.stdin.text())) {
        try {
          ${parse}(text);
        } catch {}
        console.log(JSON.stringify(text.slice(0, 20)));
      }`;
    const child = Bun.spawn([process.execPath, "-e", script], {
      stdin: new Blob([JSON.stringify(texts)]),
      timeout: KILL_AFTER_MS,
      killSignal: "SIGKILL",
    });
    const lines = (await child.stdout.text()).trimEnd().split("\n");
    expect(lines).toEqual(texts.map((text) => JSON.stringify(text.slice(0, 20))));
  },
  2 * KILL_AFTER_MS,
);

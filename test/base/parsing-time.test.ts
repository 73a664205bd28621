// Texts of 1 MB. A linear parser reads each in less than a second, a quadratic one in many minutes, in which it blocks
// its thread. So another process parses them, and is killed if it hangs.
import { expect, test } from "bun:test";

const SIZE = 2 ** 20;
const KILL_AFTER_MS = 60_000;
const fill = (text: string) => text.repeat(Math.floor(SIZE / text.length));

const names = Array.from({ length: 100_000 }, (_, at) => `"${at}":1`).join(",");

const jsonTexts: [what: string, text: string][] = [
  ["one long string", `"${fill("a")}"`],
  ["quotes", fill('"')],
  ["backslashes", `"${fill("\\")}`],
  ["escapes", `"${fill("\\u0061")}"`],
  ["brackets", fill("[")],
  ["colons", fill(":")],
  ["colons after a long string", `["${"a".repeat(SIZE / 2)}"${":".repeat(SIZE / 2)}`],
  ["colons after many escapes", `["${"\\u0061".repeat(SIZE / 12)}"${":".repeat(SIZE / 2)}`],
  [
    "colons after many escapes, in an object",
    `{"${"\\u0061".repeat(SIZE / 12)}"${":".repeat(SIZE / 2)}`,
  ],
  ["many names, one twice", `{${names},"0":1}`],
  ["a long integer", fill("9")],
  ["zeros before a last digit", `[1.${fill("0")}1]`],
  ["zeros before an exponent", `[1${"0".repeat(SIZE / 2)}1e-${SIZE / 2}]`],
  ["a long exponent", `1e${fill("9")}`],
  ["white space", fill(" ")],
];

const emails: [what: string, text: string][] = [
  ["letters", fill("a")],
  ["dots before the at sign", `${fill("a.")}@b`],
  ["letters behind the at sign", `a@${fill("b")}`],
  ["dots behind the at sign", `a@${fill("b.")}`],
  ["dots and a last hyphen", `a@${fill("b.")}-`],
  ["a long label and hyphens", `a@${"b".repeat(SIZE / 2)}.${"-".repeat(SIZE / 2)}`],
  ["letters that are not ASCII", fill("é")],
];

/**
 * @param parse a function of a module in `src`
 * @returns the texts that it has parsed or rejected
 */
async function parsedIn(
  module: string,
  parse: string,
  texts: readonly (readonly [what: string, text: string])[],
): Promise<string[]> {
  const script = `
    import { ${parse} } from "${import.meta.dir}/../../src/base/${module}";
    for (const [what, text] of JSON.parse(await Bun.stdin.text())) {
      try {
        ${parse}(text);
      } catch {}
      console.log(what);
    }`;
  const child = Bun.spawn([process.execPath, "-e", script], {
    stdin: new Blob([JSON.stringify(texts)]),
    timeout: KILL_AFTER_MS,
    killSignal: "SIGKILL",
  });
  return (await child.stdout.text()).trimEnd().split("\n");
}

test.each([
  ["parseJson", "json.ts", jsonTexts],
  ["isEmail", "email.ts", emails],
] as const)(
  "%s parses or rejects a long text in linear time",
  async (parse, module, texts) => {
    expect(await parsedIn(module, parse, texts)).toEqual(texts.map(([what]) => what));
  },
  2 * KILL_AFTER_MS,
);

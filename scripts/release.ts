// Builds dist/release: for each target an archive with the binary and its licenses, and an SBOM; and the
// checksums of these files. Builds of the same commit are identical.
import { copyFile, mkdir, rename, rm } from "node:fs/promises";
import { $ } from "bun";
import { version } from "../package.json" with { type: "json" };
import { createArchive } from "./release/archive.ts";
import { readContents } from "./release/contents.ts";
import { createNotices } from "./release/notices.ts";
import { fetchRuntime } from "./release/runtime.ts";
import { createSbom } from "./release/sbom.ts";
import { type Target, targets } from "./release/targets.ts";

const DIRECTORY = "dist/release";
const WORK = "dist/release.work";

function sha256(bytes: Uint8Array): string {
  return new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
}

async function requireVersion(directory: string): Promise<void> {
  const reported = (await $`${directory}/user-api version`.text()).trim();
  if (!reported.startsWith(`${version} (commit `))
    throw new Error(`the binary reports version ${reported}, not ${version}`);
}

/** @returns the names of the files */
async function release(target: Target, committedAt: Date): Promise<string[]> {
  const name = `user-api-${version}-${target.name}`;
  const inside = `${WORK}/${name}`;
  const built = `${WORK}/${name}.build`;
  const metafile = `${built}/meta.json`;
  for (const directory of [inside, built]) await mkdir(directory, { recursive: true });

  const runtime = await fetchRuntime(target);
  await $`sh scripts/build.sh --target=bun-${target.name} --compile-executable-path=${runtime} --outfile=${built}/user-api --metafile=${metafile}`.quiet();
  await rename(`${built}/user-api`, `${inside}/user-api`);
  const packages = await readContents(await Bun.file(metafile).json());
  const binary = await Bun.file(`${inside}/user-api`).bytes();
  // The binaries for other platforms do not run here.
  if (target.name === `${process.platform}-${process.arch}`) await requireVersion(inside);

  const facts = { version, target, packages };
  await Bun.write(`${inside}/THIRD-PARTY-NOTICES`, await createNotices(facts));
  if (target.name.startsWith("linux")) {
    for (const unit of ["user-api.service", "user-api-backup.service", "user-api-backup.timer"]) {
      await copyFile(`deploy/${unit}`, `${inside}/${unit}`);
    }
  }
  const seconds = committedAt.getTime() / 1000;
  const archive = await createArchive(WORK, name, seconds);
  const sbom = createSbom({ ...facts, sha256: sha256(binary), committedAt });

  await Bun.write(`${DIRECTORY}/${name}.tar.gz`, archive);
  await Bun.write(`${DIRECTORY}/${name}.cdx.json`, sbom);
  console.log(`${DIRECTORY}/${name}.tar.gz: ${(archive.length / 1e6).toFixed(1)} MB`);
  return [`${name}.tar.gz`, `${name}.cdx.json`];
}

async function releaseAll(): Promise<void> {
  const changes = (await $`git status --porcelain`.text()).trim();
  if (changes !== "") throw new Error(`there are uncommitted changes\n${changes}`);
  const committedAt = new Date((await $`git log -1 --format=%cI`.text()).trim());

  for (const directory of [DIRECTORY, WORK]) await rm(directory, { recursive: true, force: true });
  await mkdir(DIRECTORY, { recursive: true });
  const files: string[] = [];
  for (const target of targets) files.push(...(await release(target, committedAt)));
  const sums = await Promise.all(
    files.sort().map(async (file) => {
      return `${sha256(await Bun.file(`${DIRECTORY}/${file}`).bytes())}  ${file}\n`;
    }),
  );
  await Bun.write(`${DIRECTORY}/SHA256SUMS`, sums.join(""));
  await rm(WORK, { recursive: true });
}

try {
  await releaseAll();
} catch (error) {
  // The output of a failed command says why.
  const output = error instanceof $.ShellError ? error.stderr.toString() : "";
  console.error(
    `Cannot release: ${error instanceof Error ? error.message : error}\n${output}`.trim(),
  );
  process.exitCode = 1;
}

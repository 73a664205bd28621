// Makes dist/release: for each target an archive with the binary and its licences, and a bill of
// materials; and the checksums of all. The same commit always gives the same bytes.
import { copyFile, mkdir, rename, rm } from "node:fs/promises";
import { $ } from "bun";
import { version } from "../package.json" with { type: "json" };
import { createArchive } from "./release/archive.ts";
import { readContents } from "./release/contents.ts";
import { createNotices } from "./release/notices.ts";
import { fetchRuntime } from "./release/runtime.ts";
import { createSbom } from "./release/sbom.ts";
import { requireAdHocSignature } from "./release/signature.ts";
import { type Target, targets } from "./release/targets.ts";

const FOLDER = "dist/release";
const WORK = "dist/release.work";

function sha256(bytes: Uint8Array): string {
  return new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
}

async function requireVersion(folder: string): Promise<void> {
  const said = (await $`${folder}/user-api version`.text()).trim();
  if (said !== version) throw new Error(`the program says that it is ${said}, not ${version}`);
}

/** @returns the names of the files made */
async function release(target: Target, committed_at: Date): Promise<string[]> {
  const name = `user-api-${version}-${target.name}`;
  const inside = `${WORK}/${name}`;
  const built = `${WORK}/${name}.build`;
  const metafile = `${built}/meta.json`;
  for (const folder of [inside, built]) await mkdir(folder, { recursive: true });

  const runtime = await fetchRuntime(target, Bun.version);
  await $`sh scripts/build.sh --target=${target.bun_target} --compile-executable-path=${runtime} --outfile=${built}/user-api --metafile=${metafile}`.quiet();
  await rename(`${built}/user-api`, `${inside}/user-api`);
  const packages = await readContents(await Bun.file(metafile).json());
  const binary = await Bun.file(`${inside}/user-api`).bytes();
  if (target.os === "macos") requireAdHocSignature(binary);
  // Of the others only tests under an emulator can tell.
  if (target.name === `${process.platform}-${process.arch}`) await requireVersion(inside);

  const facts = { version, target, packages, versions: process.versions };
  await Bun.write(`${inside}/THIRD-PARTY-NOTICES`, await createNotices(facts));
  if (target.os === "linux")
    await copyFile("deploy/user-api.service", `${inside}/user-api.service`);
  const seconds = committed_at.getTime() / 1000;
  const archive = await createArchive(WORK, name, ["user-api"], seconds);
  const sbom = await createSbom({ ...facts, sha256: sha256(binary), committed_at });

  await Bun.write(`${FOLDER}/${name}.tar.gz`, archive);
  await Bun.write(`${FOLDER}/${name}.cdx.json`, sbom);
  console.log(`${FOLDER}/${name}.tar.gz: ${(archive.length / 1e6).toFixed(1)} MB`);
  return [`${name}.tar.gz`, `${name}.cdx.json`];
}

async function releaseAll(): Promise<void> {
  const changes = (await $`git status --porcelain`.text()).trim();
  if (changes !== "") throw new Error(`there are changes that are not committed\n${changes}`);
  const committed_at = new Date((await $`git log -1 --format=%cI`.text()).trim());

  for (const folder of [FOLDER, WORK]) await rm(folder, { recursive: true, force: true });
  await mkdir(FOLDER, { recursive: true });
  const files: string[] = [];
  for (const target of targets) files.push(...(await release(target, committed_at)));
  const sums = await Promise.all(
    files.sort().map(async (file) => {
      return `${sha256(await Bun.file(`${FOLDER}/${file}`).bytes())}  ${file}\n`;
    }),
  );
  await Bun.write(`${FOLDER}/SHA256SUMS`, sums.join(""));
  await rm(WORK, { recursive: true });
}

try {
  await releaseAll();
} catch (error) {
  // What a command has said tells more than that it failed.
  const words = error instanceof $.ShellError ? error.stderr.toString() : "";
  console.error(
    `Cannot release: ${error instanceof Error ? error.message : error}\n${words}`.trim(),
  );
  process.exitCode = 1;
}

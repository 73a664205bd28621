/** The npm packages that a binary contains, as reported by the bundler. */
import { readdir } from "node:fs/promises";

/** The part of the output of `bun build --metafile` that is used here. */
export interface Metafile {
  readonly outputs: Readonly<
    Record<
      string,
      { readonly inputs: Readonly<Record<string, { readonly bytesInOutput: number }>> }
    >
  >;
}

export interface BundledPackage {
  readonly name: string;
  readonly version: string;
  /** An SPDX expression. */
  readonly license: string;
  readonly homepage: string | null;
  /** Checksum of the package's archive, as in bun.lock: `sha512-…`. */
  readonly integrity: string;
  /** Names of its dependencies that are in the binary. */
  readonly dependencies: readonly string[];
  /** The contents of its license files. */
  readonly texts: readonly string[];
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  readonly homepage?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

/** Each package is `[name@version, registry, dependencies, integrity]`. */
interface Lock {
  readonly packages: Readonly<Record<string, readonly [string, string, unknown, string]>>;
}

const OURS = /^(src\/|package\.json$)/;
/** The innermost directory of a package. */
const PACKAGE = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const LICENSE_FILE = /^(licen[cs]e|copying|notice)([.-].*)?$/i;

/**
 * @returns the files of each package with its directory, sorted; files that contribute no byte to the output
 *   are left out
 */
function filesOf(metafile: Metafile): [directory: string, files: string[]][] {
  const directories = new Map<string, string[]>();
  for (const { inputs } of Object.values(metafile.outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      if (bytesInOutput === 0 || OURS.test(path)) continue;
      const directory = PACKAGE.exec(path)?.[0];
      if (directory === undefined) throw new Error(`Cannot find the package of ${path}`);
      directories.set(directory, [...(directories.get(directory) ?? []), path]);
    }
  }
  return [...directories].sort(([one], [other]) => (one < other ? -1 : 1));
}

/**
 * The licenses of a package, and of others that are bundled in one of its files: webpack writes those next to
 * that file.
 */
async function licenseTexts(directory: string, files: readonly string[]): Promise<string[]> {
  const names = (await readdir(directory)).filter((file) => LICENSE_FILE.test(file)).sort();
  const ofFiles = files.map((file) => `${file}.LICENSE.txt`).sort();
  const texts = [...names.map((name) => `${directory}/${name}`), ...ofFiles].map(async (path) => {
    const file = Bun.file(path);
    return (await file.exists()) ? (await file.text()).trim() : "";
  });
  return (await Promise.all(texts)).filter((text) => text !== "");
}

/** @returns sorted by name @throws if a package has no license */
export async function readContents(metafile: Metafile): Promise<BundledPackage[]> {
  const lock = Bun.JSONC.parse(await Bun.file("bun.lock").text()) as Lock;
  const integrities = new Map(
    Object.values(lock.packages).map(([spec, , , integrity]) => [spec, integrity]),
  );
  const bundled = await Promise.all(
    filesOf(metafile).map(async ([directory, files]) => {
      const manifest = (await Bun.file(`${directory}/package.json`).json()) as Manifest;
      return { manifest, texts: await licenseTexts(directory, files) };
    }),
  );
  const names = new Set(bundled.map(({ manifest }) => manifest.name));
  return bundled.map(({ manifest, texts }) => {
    const { name, version, license, homepage = null } = manifest;
    const integrity = integrities.get(`${name}@${version}`);
    if (license === undefined) throw new Error(`${name} has no license in its package.json`);
    if (integrity === undefined) throw new Error(`bun.lock has no ${name}@${version}`);
    const needs = { ...manifest.dependencies, ...manifest.peerDependencies };
    const dependencies = [...names].filter((need) => Object.hasOwn(needs, need)).sort();
    return { name, version, license, homepage, integrity, dependencies, texts };
  });
}

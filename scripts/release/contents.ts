/** Which npm packages are really in a binary: told by the bundler, not by package.json. */
import { readdir } from "node:fs/promises";

/** What `bun build --metafile` writes, as far as it is read here. */
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
  /** Of the package's archive, as in bun.lock: `sha512-…`. */
  readonly integrity: string;
  /** Names of the packages in the binary that it may use. */
  readonly dependencies: readonly string[];
  /** The words of its licence files. */
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

/** Each is `[name@version, registry, needs, integrity]`. */
interface Lock {
  readonly packages: Readonly<Record<string, readonly [string, string, unknown, string]>>;
}

const OURS = /^(src\/|package\.json$)/;
/** The innermost folder of a package. */
const PACKAGE = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const LICENSE_FILE = /^(licen[cs]e|copying|notice)([.-].*)?$/i;

/**
 * @returns the files of each package, by the path of its folder, sorted; what leaves no byte in the
 *   output does not count
 */
function filesOf(metafile: Metafile): [folder: string, files: string[]][] {
  const folders = new Map<string, string[]>();
  for (const { inputs } of Object.values(metafile.outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      if (bytesInOutput === 0 || OURS.test(path)) continue;
      const folder = PACKAGE.exec(path)?.[0];
      if (folder === undefined) throw new Error(`Cannot tell whose ${path} is`);
      folders.set(folder, [...(folders.get(folder) ?? []), path]);
    }
  }
  return [...folders].sort(([one], [other]) => (one < other ? -1 : 1));
}

/**
 * The licences of a package, and of others that its makers have put into a file of it: webpack writes
 * those beside that file. scripts/assets.ts has compressed some.
 */
async function licenseTexts(folder: string, files: readonly string[]): Promise<string[]> {
  const names = (await readdir(folder)).filter((file) => LICENSE_FILE.test(file)).sort();
  const beside = files.map((file) => `${file.replace(/\.br$/, "")}.LICENSE.txt`).sort();
  const texts = [...names.map((name) => `${folder}/${name}`), ...beside].map(async (path) => {
    const file = Bun.file(path);
    return (await file.exists()) ? (await file.text()).trim() : "";
  });
  return (await Promise.all(texts)).filter((text) => text !== "");
}

async function readLock(): Promise<Lock> {
  return Bun.JSONC.parse(await Bun.file("bun.lock").text()) as Lock;
}

/** @returns sorted by name @throws when a package does not say under which licence it stands */
export async function readContents(metafile: Metafile): Promise<BundledPackage[]> {
  const lock = await readLock();
  const integrities = new Map(
    Object.values(lock.packages).map(([spec, , , integrity]) => [spec, integrity]),
  );
  const folders = filesOf(metafile);
  const manifests = await Promise.all(
    folders.map(async ([folder]) => (await Bun.file(`${folder}/package.json`).json()) as Manifest),
  );
  const names = new Set(manifests.map(({ name }) => name));
  return Promise.all(
    manifests.map(async (manifest, index) => {
      const { name, version, license } = manifest;
      const integrity = integrities.get(`${name}@${version}`);
      if (license === undefined) throw new Error(`${name} names no licence`);
      if (integrity === undefined) throw new Error(`bun.lock has no ${name}@${version}`);
      const texts = await licenseTexts(...(folders[index] ?? ["", []]));
      const needs = { ...manifest.dependencies, ...manifest.peerDependencies };
      const dependencies = Object.keys(needs)
        .filter((need) => names.has(need))
        .sort();
      return {
        name,
        version,
        license,
        homepage: manifest.homepage ?? null,
        integrity,
        dependencies,
        texts,
      };
    }),
  );
}

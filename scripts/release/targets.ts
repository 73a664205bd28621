/** The platforms of a release, and the build of Bun for each. On x64, the one for processors without AVX. */
import integrity from "../bun-integrity.json";

export interface Target {
  /** Part of the file names. The `--target` of `bun build` is `bun-<name>`. */
  readonly name: string;
  /** The npm package with the executable of Bun, in the version that package.json pins. */
  readonly runtimePackage: string;
  /** SHA-512 of the package's archive, as npm writes it. */
  readonly runtimeIntegrity: string;
}

function target(name: string, runtimePackage: keyof typeof integrity): Target {
  return { name, runtimePackage, runtimeIntegrity: integrity[runtimePackage] };
}

export const targets: readonly Target[] = [
  target("linux-x64", "@oven/bun-linux-x64-baseline"),
  target("linux-arm64", "@oven/bun-linux-aarch64"),
  target("darwin-x64", "@oven/bun-darwin-x64-baseline"),
  target("darwin-arm64", "@oven/bun-darwin-aarch64"),
];

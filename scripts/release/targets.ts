/** The platforms of a release, and the build of Bun for each. On x64, the one for processors without AVX. */
export interface Target {
  /** Part of the file names. The `--target` of `bun build` is `bun-<name>`. */
  readonly name: string;
  /** The npm package with the executable of Bun, in the version that package.json pins. */
  readonly runtimePackage: string;
  /** SHA-512 of the package's archive, as npm writes it. Update it with the version of Bun. */
  readonly runtimeIntegrity: string;
}

export const targets: readonly Target[] = [
  {
    name: "linux-x64",
    runtimePackage: "@oven/bun-linux-x64-baseline",
    runtimeIntegrity:
      "sha512-s8yMwYcFnnrA178gji0gZbkE2WVDej/Ti1x770oPfihxyRxSMNhGhiAQNXV53aDeraZxksdvKV/RAdQBCd0qPA==",
  },
  {
    name: "linux-arm64",
    runtimePackage: "@oven/bun-linux-aarch64",
    runtimeIntegrity:
      "sha512-4BXmsSKnjOrlGWqZV4x/oWa7AVoR+B6lCXddMzOAXBIm3t50eslg9wb66gmtW1AamEQ1l1CDvmmruysEhqOWMg==",
  },
  {
    name: "darwin-x64",
    runtimePackage: "@oven/bun-darwin-x64-baseline",
    runtimeIntegrity:
      "sha512-zqfLA5A4B+hYMh5WYzYSot3uZ06FzhdP0OEwQisEzdirYtXGj5cQFlfy31BGfNsAsk1Gd/w/OxJ/jqqJ3cMclw==",
  },
  {
    name: "darwin-arm64",
    runtimePackage: "@oven/bun-darwin-aarch64",
    runtimeIntegrity:
      "sha512-4MIFXHmctH2EhAxLXm2/qxNtv17dFtLJylvaOCsrgq6KSqHTs6eW5YSrJjRbJxYUJaR901fsN8JfZOa+CsWpWQ==",
  },
];

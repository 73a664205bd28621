/**
 * The bill of materials (SBOM) of one binary, in CycloneDX 1.6. The tests hold it to the schema.
 * @see https://cyclonedx.org/docs/1.6/json/
 */
import type { ReleaseFacts } from "./notices.ts";

export interface Materials extends ReleaseFacts {
  /** Checksum of the binary, in hexadecimal. */
  readonly sha256: string;
  /** Time of the commit, so that the SBOM of a commit is always the same. */
  readonly committedAt: Date;
}

/** An npm package. */
interface Part {
  readonly type: "library" | "platform";
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly purl: string;
  readonly homepage: string | null;
  /** Hash of the package's archive, as npm writes it: `sha512-…` in base64. */
  readonly integrity: string;
  /** The purls of its dependencies. */
  readonly dependsOn: readonly string[];
}

function npmPurl(name: string, version: string): string {
  return `pkg:npm/${name.replace("@", "%40")}@${version}`;
}

function componentOf({ type, name, version, license, purl, homepage, integrity }: Part) {
  const content = Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");
  const isSimple = /^[\w.-]+$/.test(license);
  return {
    type,
    name,
    version,
    "bom-ref": purl,
    scope: "required",
    hashes: [{ alg: "SHA-512", content }],
    licenses: [isSimple ? { license: { id: license } } : { expression: license }],
    purl,
    ...(homepage !== null && { externalReferences: [{ url: homepage, type: "website" }] }),
  };
}

/** @returns JSON */
export function createSbom({ version, target, packages, sha256, committedAt }: Materials): string {
  const purls = new Map(packages.map((each) => [each.name, npmPurl(each.name, each.version)]));
  const purlOf = (name: string) => purls.get(name) ?? "";
  const parts: Part[] = [
    // One component for Bun: it does not report the versions of all libraries that are linked into it.
    {
      type: "platform",
      name: "bun",
      version: Bun.version,
      license: "MIT",
      purl: npmPurl(target.runtimePackage, Bun.version),
      homepage: "https://bun.com",
      integrity: target.runtimeIntegrity,
      dependsOn: [],
    },
    ...packages.map(
      (bundled): Part => ({
        ...bundled,
        type: "library",
        purl: purlOf(bundled.name),
        dependsOn: bundled.dependencies.map(purlOf),
      }),
    ),
  ];
  const bom = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    // Derived from the binary, so that the same binary has the same number.
    serialNumber: `urn:uuid:${Bun.randomUUIDv5(sha256, "oid")}`,
    metadata: {
      timestamp: committedAt.toISOString(),
      component: {
        type: "application",
        name: "user-api",
        version,
        "bom-ref": "user-api",
        hashes: [{ alg: "SHA-256", content: sha256 }],
      },
    },
    components: parts.map(componentOf),
    dependencies: [
      { ref: "user-api", dependsOn: parts.map(({ purl }) => purl) },
      ...parts.map(({ purl, dependsOn }) => ({ ref: purl, dependsOn })),
    ],
  };
  return `${JSON.stringify(bom, null, 2)}\n`;
}

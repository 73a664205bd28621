/** The bill of materials (SBOM) of one binary, in CycloneDX 1.6. */
import { Enums, Models, Serialize, Spec, Validation } from "@cyclonedx/cyclonedx-library";
import type { ReleaseFacts } from "./notices.ts";

export interface Materials extends ReleaseFacts {
  /** Checksum of the binary, in hexadecimal. */
  readonly sha256: string;
  /** Time of the commit, so that the SBOM of a commit is always the same. */
  readonly committed_at: Date;
}

/** An npm package. */
interface Part {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly purl: string;
  readonly homepage: string | null;
  /** Hash of the package's archive, as npm writes it: `sha512-…` in base64. */
  readonly integrity: string;
}

function createComponent(
  { name, version, license, purl, homepage, integrity }: Part,
  type: Enums.ComponentType = Enums.ComponentType.Library,
): Models.Component {
  const scope = Enums.ComponentScope.Required;
  const component = new Models.Component(type, name, { version, purl, bomRef: purl, scope });
  const is_simple = /^[\w.-]+$/.test(license);
  component.licenses.add(
    is_simple ? new Models.SpdxLicense(license) : new Models.LicenseExpression(license),
  );
  if (homepage !== null) {
    component.externalReferences.add(
      new Models.ExternalReference(homepage, Enums.ExternalReferenceType.Website),
    );
  }
  const hex = Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");
  component.hashes.set(Enums.HashAlgorithm["SHA-512"], hex);
  return component;
}

function npmPurl(name: string, version: string): string {
  return `pkg:npm/${name.replace("@", "%40")}@${version}`;
}

function createBom(materials: Materials): Models.Bom {
  const { version, target, packages, versions } = materials;
  const bun_version = versions["bun"] ?? "";

  const application = new Models.Component(Enums.ComponentType.Application, "user-api", {
    version,
    bomRef: "user-api",
  });
  application.hashes.set(Enums.HashAlgorithm["SHA-256"], materials.sha256);

  const bun = createComponent(
    {
      name: "bun",
      version: bun_version,
      license: "MIT",
      purl: npmPurl(target.runtime_package, bun_version),
      homepage: "https://bun.com",
      integrity: target.runtime_integrity,
    },
    Enums.ComponentType.Platform,
  );
  bun.copyright = "Copyright (c) Oven";

  const bundled = new Map(
    packages.map((bundle) => {
      const purl = npmPurl(bundle.name, bundle.version);
      return [bundle.name, createComponent({ ...bundle, purl })];
    }),
  );
  for (const { name, dependencies } of packages) {
    for (const need of dependencies) {
      const component = bundled.get(need);
      if (component !== undefined) bundled.get(name)?.dependencies.add(component.bomRef);
    }
  }

  // One component for Bun: it does not report the versions of all libraries that are linked into it.
  const components = [bun, ...bundled.values()];
  for (const { bomRef } of components) application.dependencies.add(bomRef);
  return new Models.Bom({
    // Derived from the binary, so that the same binary has the same number.
    serialNumber: `urn:uuid:${Bun.randomUUIDv5(materials.sha256, "oid")}`,
    metadata: new Models.Metadata({ timestamp: materials.committed_at, component: application }),
    components: new Models.ComponentRepository(components),
  });
}

/**
 * @returns JSON
 * @throws if it does not match the schema of CycloneDX
 */
export async function createSbom(materials: Materials): Promise<string> {
  const normalizer = new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6);
  const serializer = new Serialize.JsonSerializer(normalizer);
  const json = serializer.serialize(createBom(materials), { sortLists: true, space: 2 });
  await requireValid(json);
  return `${json}\n`;
}

/** @throws if the SBOM does not match the schema, or has unknown fields */
export async function requireValid(json: string): Promise<void> {
  const problem = await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(json);
  if (problem !== null)
    throw new Error(`The SBOM does not match its schema: ${JSON.stringify(problem)}`);
}

/** The bill of materials (SBOM) of one binary, in CycloneDX 1.6. */
import { Enums, Models, Serialize, Spec, Validation } from "@cyclonedx/cyclonedx-library";
import type { BundledPackage } from "./contents.ts";
import type { Target } from "./targets.ts";

export interface Materials {
  readonly version: string;
  readonly target: Target;
  readonly packages: readonly BundledPackage[];
  /** `process.versions` of Bun. */
  readonly versions: Readonly<Record<string, string | undefined>>;
  /** Checksum of the binary, in hexadecimal. */
  readonly sha256: string;
  /** Time of the commit, so that the SBOM of a commit is always the same. */
  readonly committed_at: Date;
}

function createComponent(
  name: string,
  fields: {
    version: string;
    license: string;
    purl: string;
    copyright?: string;
    url: string | null;
  },
  type: Enums.ComponentType = Enums.ComponentType.Library,
): Models.Component {
  const { version, license, purl, copyright, url } = fields;
  const component = new Models.Component(type, name, {
    version,
    purl,
    bomRef: purl,
    scope: Enums.ComponentScope.Required,
  });
  if (copyright !== undefined) component.copyright = copyright;
  const simple = /^[\w.-]+$/.test(license);
  component.licenses.add(
    simple ? new Models.SpdxLicense(license) : new Models.LicenseExpression(license),
  );
  if (url !== null) {
    component.externalReferences.add(
      new Models.ExternalReference(url, Enums.ExternalReferenceType.Website),
    );
  }
  return component;
}

/** `sha512-…` in base64, as npm has it, is a hash of the package's archive. */
function addIntegrity(component: Models.Component, integrity: string): void {
  const hex = Buffer.from(integrity.replace(/^sha512-/, ""), "base64").toString("hex");
  component.hashes.set(Enums.HashAlgorithm["SHA-512"], hex);
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
    "bun",
    {
      version: bun_version,
      license: "MIT",
      purl: npmPurl(target.runtime_package, bun_version),
      copyright: "Copyright (c) Oven",
      url: "https://bun.com",
    },
    Enums.ComponentType.Platform,
  );
  addIntegrity(bun, target.runtime_integrity);

  const bundled = new Map(
    packages.map((bundle) => {
      const { name, version: released, license, homepage: url } = bundle;
      const purl = npmPurl(name, released);
      const component = createComponent(name, { version: released, license, purl, url });
      addIntegrity(component, bundle.integrity);
      return [name, component];
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

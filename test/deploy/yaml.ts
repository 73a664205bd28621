/** Reads a YAML file of deploy/. */
async function readText(path: string): Promise<string> {
  return Bun.file(`${import.meta.dir}/../../deploy/${path}`).text();
}

/** @param path below deploy/ */
export async function readYaml(path: string): Promise<any> {
  return Bun.YAML.parse(await readText(path));
}

/** @returns the documents of a file, which are separated by `---` */
export async function readYamlDocuments(path: string): Promise<any[]> {
  return (await readText(path)).split(/^---$/m).map((document) => Bun.YAML.parse(document));
}

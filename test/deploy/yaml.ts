export const deploy: string = `${import.meta.dir}/../../deploy`;

/** @param path below deploy/ */
export async function readYaml(path: string): Promise<any> {
  return Bun.YAML.parse(await Bun.file(`${deploy}/${path}`).text());
}

export async function readYamlDocuments(path: string): Promise<any[]> {
  const text = await Bun.file(`${deploy}/${path}`).text();
  return text.split(/^---$/m).map((document) => Bun.YAML.parse(document));
}

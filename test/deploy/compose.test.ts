// The compose file: that what it promises is in it, and fits the program and the image.
import { expect, test } from "bun:test";
import { settings } from "../../src/config.ts";

const directory = `${import.meta.dir}/../../deploy`;

async function readYaml(file: string) {
  return Bun.YAML.parse(await Bun.file(`${directory}/${file}`).text()) as any;
}

test("`compose.yaml` drops all privileges that `user-api` does not need", async () => {
  const { services, volumes } = await readYaml("compose.yaml");
  const service = services["user-api"];
  expect(service).toMatchObject({
    read_only: true,
    cap_drop: ["ALL"],
    security_opt: ["no-new-privileges:true"],
    ports: ["127.0.0.1:3000:3000"],
    volumes: ["data:/data"],
  });
  expect(Object.keys(volumes)).toEqual(["data"]);
  // The image defines it.
  expect(service).not.toHaveProperty("healthcheck");
  for (const key of ["privileged", "user", "cap_add", "network_mode"]) {
    expect(service).not.toHaveProperty(key);
  }
});

test("`stop_grace_period` is longer than SHUTDOWN_SECONDS, to close the database", async () => {
  const { services } = await readYaml("compose.yaml");
  const [, seconds] = /^(\d+)s$/.exec(services["user-api"].stop_grace_period) ?? [];
  expect(Number(seconds)).toBeGreaterThanOrEqual(Number(settings.shutdown_seconds.default) + 5);
});

test("`environment` contains only known settings", async () => {
  const { services } = await readYaml("compose.yaml");
  const known = new Set<string>(["API_TOKEN", ...Object.values(settings).map((s) => s.variable)]);
  const names: string[] = services["user-api"].environment;
  expect(names).toContain("API_TOKEN");
  expect(names.filter((name) => !known.has(name))).toEqual([]);
});

test("`litestream.yml` replicates the database of the systemd unit", async () => {
  const { dbs } = await readYaml("litestream.yml");
  const unit = await Bun.file(`${directory}/user-api.service`).text();
  expect(dbs).toHaveLength(1);
  expect(unit).toContain(`\nEnvironment=DATABASE_URL=${dbs[0].path}\n`);
});

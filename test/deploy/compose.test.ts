// deploy/compose.yaml and the manifests for Kubernetes: their privileges, settings and timeouts.
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { settings, variableOf } from "../../src/domain/settings.ts";
import { deploy, readYaml, readYamlDocuments } from "./yaml.ts";

const credentials = ["S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"];
const ofStorage = [...credentials, "S3_ENDPOINT", "S3_REGION", "S3_SESSION_TOKEN"];
const knownSettings = ["API_TOKEN", ...Object.keys(settings).map(variableOf), ...ofStorage];
const shutdownSeconds = Number(settings.shutdownSeconds.default);
/** How long closing the database may take after SHUTDOWN_SECONDS. */
const CLOSE_SECONDS = 5;

const { services, volumes, secrets } = await readYaml("compose.yaml");
const service = services["user-api"];
const all = Object.values<any>(services);

test("compose.yaml gives user-api no privileges that it does not need, and time to close the database", () => {
  const closed = { read_only: true, cap_drop: ["ALL"], security_opt: ["no-new-privileges:true"] };
  expect(service).toMatchObject({ ...closed, volumes: ["data:/data"] });
  // The image defines the health check.
  for (const key of ["healthcheck", "privileged", "user", "cap_add", "network_mode"])
    expect(service).not.toHaveProperty(key);
  const graceSeconds = Number.parseInt(service.stop_grace_period, 10);
  expect(graceSeconds).toBeGreaterThanOrEqual(shutdownSeconds + CLOSE_SECONDS);
});

test("compose.yaml passes every setting that the image and this file do not decide, and the path of each secret", async () => {
  const decided = ["HOST", "PORT", "TLS_CERT", "TLS_KEY", "SHUTDOWN_SECONDS"];
  const passed = knownSettings.filter((name) => !decided.includes(name));
  expect(service.environment.toSorted()).toEqual(passed.sort());
  const withSecrets = await readYaml("compose.secrets.yaml");
  const { environment, secrets: mounted } = withSecrets.services["user-api"];
  expect(Object.keys(withSecrets.secrets)).toEqual(mounted);
  const paths = mounted.map((name: string) => `${name.toUpperCase()}_FILE=/run/secrets/${name}`);
  expect(environment).toEqual(paths);
});

test("every port of compose.yaml is published on loopback only, and PostgreSQL has none", () => {
  const ports: string[] = all.flatMap((each) => each.ports ?? []);
  expect(ports.filter((port) => !port.startsWith("127.0.0.1:"))).toEqual([]);
  expect(ports).toContain("127.0.0.1:3000:3000");
  expect(services.postgres).not.toHaveProperty("ports");
});

test("the profile standby of compose.yaml starts the same server twice, and HAProxy with their addresses", async () => {
  const { "user-api-two": two, haproxy } = services;
  const own = { profiles: ["standby"], ports: [], volumes: ["data-two:/data"] };
  expect(two).toEqual({ ...service, ...own });
  const config = await Bun.file(`${deploy}/haproxy.cfg`).text();
  for (const name of Object.keys(haproxy.environment)) expect(config).toContain(`"$${name}"`);
  expect(haproxy.ports).toEqual(["127.0.0.1:3080:3080"]);
  expect(config).toContain("bind :3080\n");
});

test("all volumes, secrets and mounted files of compose.yaml exist", async () => {
  for (const mount of all.flatMap((each): string[] => each.volumes ?? [])) {
    const [source = ""] = mount.split(":");
    if (source.startsWith("./")) expect(existsSync(`${deploy}/${source}`)).toBe(true);
    else expect(Object.keys(volumes)).toContain(source);
  }
  for (const secret of services.prometheus.secrets) expect(secrets).toHaveProperty(secret);
  const { scrape_configs, rule_files } = await readYaml("prometheus/prometheus.yml");
  const [{ authorization, static_configs }] = scrape_configs;
  expect(authorization.credentials_file).toBe("/run/secrets/metrics_token");
  expect(static_configs).toEqual([{ targets: ["user-api:3000"] }]);
  expect(rule_files).toEqual(["alerts.yml"]);
});

const [replicated, single, archived] = await Promise.all(
  ["kubernetes", "kubernetes-sqlite", "kubernetes-archive"].map((name) =>
    readYamlDocuments(`${name}.yaml`),
  ),
);
const podOf = ({ spec }: any) => (spec.jobTemplate?.spec ?? spec).template?.spec;

test.each([
  ["", replicated, ["DATABASE_URL"]],
  ["-sqlite", single, []],
  ["-archive", archived, credentials],
])(
  "kubernetes%s.yaml has pods without privileges, known settings and time to end",
  (name, documents: any, secrets) => {
    const { labels } = documents[0].spec.template.metadata;
    for (const { spec } of documents) {
      const selector = spec.selector?.matchLabels ?? spec.selector;
      if (selector !== undefined) expect(selector).toEqual(labels);
    }
    for (const pod of documents.map(podOf).filter(Boolean)) {
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 65_532 });
      expect(pod.automountServiceAccountToken).toBe(false);
      expect(pod.containers).toHaveLength(1);
      expect(pod.containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
    }
    const pod = podOf(documents[0]);
    const [{ env = [], ports, volumeMounts, lifecycle, ...probes }] = pod.containers;
    const values = Object.fromEntries(env.map(({ name, value }: any) => [name, value]));
    const names = Object.keys(values).map((variable) => variable.replace(/_FILE$/, ""));
    expect(knownSettings).toEqual(expect.arrayContaining(names));
    // Each is read from a file of the secret, whose keys are variables.
    for (const secret of secrets) {
      const isOfSecret = (volume: any) => volume.secret?.secretName === `user-api${name}`;
      const volume = pod.volumes.find(isOfSecret);
      const { mountPath } = volumeMounts.find((mount: any) => mount.name === volume.name);
      expect(values[`${secret}_FILE`]).toBe(`${mountPath}/${secret}`);
    }
    const stopSeconds =
      Number(values["SHUTDOWN_SECONDS"] ?? shutdownSeconds) +
      (lifecycle?.preStop.sleep.seconds ?? 0);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(stopSeconds + CLOSE_SECONDS);
    // A standby is not ready. The database does not decide whether a server is restarted.
    const ready = name === "-archive" ? "?primary" : "";
    expect(probes.readinessProbe.httpGet.path).toBe(`/api/v1/health${ready}`);
    expect(probes.startupProbe.httpGet.path).toBe("/api/v1/health");
    expect(probes.livenessProbe.httpGet.path).toBe("/api/v1/health?live");
    expect(documents[1].spec.ports[0].targetPort).toBe(ports[0].name);
  },
);

test("the backup of kubernetes-sqlite.yaml mounts the volume of the only server, on its node", () => {
  const [set, , job] = single as any[];
  const [pod, backupPod] = [podOf(set), podOf(job)];
  expect(set.spec.replicas).toBe(1);
  expect(backupPod.securityContext).toEqual(pod.securityContext);
  const [{ name }] = pod.containers[0].volumeMounts;
  const claim = backupPod.volumes[0].persistentVolumeClaim.claimName;
  expect(claim).toBe(`${name}-${set.metadata.name}-0`);
  expect(backupPod.containers[0].volumeMounts).toEqual(pod.containers[0].volumeMounts);
  const [affinity] = backupPod.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution;
  expect(affinity.labelSelector.matchLabels).toEqual(set.spec.template.metadata.labels);
});

test("of two pods of kubernetes-archive.yaml, one can end at a time, and reads go to both", () => {
  const [deployment, service, reads] = archived as any[];
  const rollingUpdate = { maxSurge: 1, maxUnavailable: 1 };
  expect(deployment.spec).toMatchObject({ replicas: 2, strategy: { rollingUpdate } });
  const notReady = [service, reads].map((each) => each.spec.publishNotReadyAddresses === true);
  expect(notReady).toEqual([false, true]);
  const [container] = podOf(deployment).containers;
  const env = Object.fromEntries(container.env.map(({ name, value }: any) => [name, value]));
  expect(env).toMatchObject({ ARCHIVE_COMMIT: "sync", STANDBY: "true" });
  expect(container.envFrom).toEqual([{ configMapRef: { name: "user-api-archive" } }]);
});

test("litestream.yml replicates the database of the systemd unit", async () => {
  const { dbs } = await readYaml("litestream.yml");
  const unit = await Bun.file(`${deploy}/user-api.service`).text();
  expect(dbs).toHaveLength(1);
  expect(unit).toContain(`\nEnvironment=DATABASE_URL=${dbs[0].path}\n`);
});

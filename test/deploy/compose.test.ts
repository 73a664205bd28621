// deploy/compose.yaml and the manifests for Kubernetes: their privileges, settings and timeouts.
import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { settings, variableOf } from "../../src/domain/settings.ts";
import { deploy, readYaml, readYamlDocuments } from "./yaml.ts";

const knownSettings = new Set<string>(["API_TOKEN", ...Object.keys(settings).map(variableOf)]);
/** How long closing the database may take after SHUTDOWN_SECONDS. */
const CLOSE_SECONDS = 5;

describe("compose.yaml", async () => {
  const { services, volumes, secrets } = await readYaml("compose.yaml");
  const service = services["user-api"];

  test("user-api has no privileges that it does not need", () => {
    expect(service).toMatchObject({
      read_only: true,
      cap_drop: ["ALL"],
      security_opt: ["no-new-privileges:true"],
      ports: ["127.0.0.1:3000:3000"],
      volumes: ["data:/data"],
    });
    // The image defines the health check.
    expect(service).not.toHaveProperty("healthcheck");
    for (const key of ["privileged", "user", "cap_add", "network_mode"]) {
      expect(service).not.toHaveProperty(key);
    }
  });

  test("stop_grace_period is longer than SHUTDOWN_SECONDS, to close the database", () => {
    const [, seconds] = /^(\d+)s$/.exec(service.stop_grace_period) ?? [];
    const shutdownSeconds = Number(settings.shutdownSeconds.default);
    expect(Number(seconds)).toBeGreaterThanOrEqual(shutdownSeconds + CLOSE_SECONDS);
  });

  test("environment passes every setting that the image and this file do not decide", () => {
    const decided = ["HOST", "PORT", "TLS_CERT", "TLS_KEY", "SHUTDOWN_SECONDS"];
    const keys = ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"];
    const credentials = ["ENDPOINT", "REGION", ...keys].map((name) => `S3_${name}`);
    const passed = [...knownSettings].filter((name) => !decided.includes(name));
    expect(service.environment.toSorted()).toEqual([...passed, ...credentials].sort());
  });

  test("every port is published on loopback only, and PostgreSQL has none", () => {
    const ports = Object.values<any>(services).flatMap((any) => any.ports ?? []);
    expect(ports.filter((port: string) => !port.startsWith("127.0.0.1:"))).toEqual([]);
    expect(services.postgres).not.toHaveProperty("ports");
  });

  test("the profile standby starts the same server twice, and HAProxy with their addresses", async () => {
    const { "user-api-two": two, haproxy } = services;
    const own = { profiles: ["standby"], ports: [], volumes: ["data-two:/data"] };
    expect(two).toEqual({ ...service, ...own });
    const config = await Bun.file(`${deploy}/haproxy.cfg`).text();
    for (const name of Object.keys(haproxy.environment)) expect(config).toContain(`"$${name}"`);
    expect(haproxy.ports).toEqual(["127.0.0.1:3080:3080"]);
    expect(config).toContain("bind :3080\n");
  });

  test("all volumes, secrets and mounted files exist", async () => {
    const mounts: string[] = Object.values<any>(services).flatMap((any) => any.volumes ?? []);
    for (const mount of mounts) {
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
});

const [replicated, single, archived] = await Promise.all(
  ["kubernetes", "kubernetes-sqlite", "kubernetes-archive"].map((name) =>
    readYamlDocuments(`${name}.yaml`),
  ),
);

test("compose.secrets.yaml sets the path of each secret that it mounts", async () => {
  const { services, secrets } = await readYaml("compose.secrets.yaml");
  const { environment, secrets: mounted } = services["user-api"];
  expect(Object.keys(secrets)).toEqual(mounted);
  const paths = mounted.map((name: string) => `${name.toUpperCase()}_FILE=/run/secrets/${name}`);
  expect(environment).toEqual(paths);
});

test.each([[replicated], [single], [archived]])(
  "pods have no privileges, and all selectors match their labels",
  (documents: any) => {
    const { labels } = documents[0].spec.template.metadata;
    for (const { spec } of documents) {
      const selector = spec.selector?.matchLabels ?? spec.selector;
      if (selector !== undefined) expect(selector).toEqual(labels);
      const pod = (spec.jobTemplate?.spec ?? spec).template?.spec;
      if (pod === undefined) continue;
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 65_532 });
      expect(pod.containers).toHaveLength(1);
      expect(pod.containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
    }
  },
);

/** Expects that the variable is read from a file of the secret, whose keys are variables. */
function expectMounted(pod: any, variable: string, secretName: string): void {
  const [{ env, volumeMounts }] = pod.containers;
  const { name } = pod.volumes.find(({ secret }: any) => secret?.secretName === secretName);
  const { mountPath } = volumeMounts.find((mount: any) => mount.name === name);
  expect(env).toContainEqual({ name: `${variable}_FILE`, value: `${mountPath}/${variable}` });
}

describe("kubernetes.yaml", () => {
  const [deployment, service] = replicated as any[];
  const { spec: pod } = deployment.spec.template;
  const [container] = pod.containers;

  test("the grace period is longer than the shutdown of a replica", () => {
    const shutdown = container.env.find(({ name }: any) => name === "SHUTDOWN_SECONDS");
    const { seconds } = container.lifecycle.preStop.sleep;
    const stopSeconds = seconds + Number(shutdown.value) + CLOSE_SECONDS;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(stopSeconds);
  });

  test("probes call public paths, and liveness does not depend on the database", () => {
    expect(container.readinessProbe.httpGet.path).toBe("/api/v1/health");
    expect(container.startupProbe.httpGet.path).toBe("/api/v1/health");
    expect(container.livenessProbe.httpGet.path).toBe("/api/v1/health?live");
    expect(service.spec.ports[0].targetPort).toBe(container.ports[0].name);
  });

  test("env contains only known settings, and a replica has no account", () => {
    const names: string[] = container.env.map(({ name }: any) => name);
    expect(names.filter((name) => !knownSettings.has(name.replace(/_FILE$/, "")))).toEqual([]);
    expectMounted(pod, "DATABASE_URL", "user-api");
    expect(pod.automountServiceAccountToken).toBe(false);
  });
});

test("the backup of kubernetes-sqlite.yaml mounts the volume of the only server, on its node", () => {
  const [set, , job] = single as any[];
  const pod = set.spec.template.spec;
  const backupPod = job.spec.jobTemplate.spec.template.spec;
  expect(set.spec.replicas).toBe(1);
  expect(backupPod.securityContext).toEqual(pod.securityContext);
  const [{ name }] = pod.containers[0].volumeMounts;
  const claim = backupPod.volumes[0].persistentVolumeClaim.claimName;
  expect(claim).toBe(`${name}-${set.metadata.name}-0`);
  expect(backupPod.containers[0].volumeMounts).toEqual(pod.containers[0].volumeMounts);
  const [affinity] = backupPod.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution;
  expect(affinity.labelSelector.matchLabels).toEqual(set.spec.template.metadata.labels);
});

test("of two pods of kubernetes-archive.yaml, only the one that writes is ready, and an upgrade waits", () => {
  const [{ spec }, service, reads] = archived as any[];
  const { spec: pod } = spec.template;
  const [container] = pod.containers;
  const rollingUpdate = { maxSurge: 1, maxUnavailable: 1 };
  expect(spec).toMatchObject({ replicas: 2, strategy: { rollingUpdate } });
  expect(container.readinessProbe.httpGet.path).toBe("/api/v1/health?primary");
  expect(container.startupProbe.httpGet.path).toBe("/api/v1/health");
  const notReady = [service, reads].map((each) => each.spec.publishNotReadyAddresses === true);
  expect(notReady).toEqual([false, true]);
  const env = Object.fromEntries(container.env.map(({ name, value }: any) => [name, value]));
  expect(env).toMatchObject({ ARCHIVE_COMMIT: "sync", STANDBY: "true" });
  expect(container.envFrom).toEqual([{ configMapRef: { name: "user-api-archive" } }]);
  expectMounted(pod, "S3_ACCESS_KEY_ID", "user-api-archive");
  expectMounted(pod, "S3_SECRET_ACCESS_KEY", "user-api-archive");
  expect(pod.volumes).toContainEqual({ name: "data", emptyDir: { sizeLimit: "10Gi" } });
  expect(container.volumeMounts).toContainEqual({ name: "data", mountPath: "/data" });
});

test("litestream.yml replicates the database of the systemd unit", async () => {
  const { dbs } = await readYaml("litestream.yml");
  const unit = await Bun.file(`${deploy}/user-api.service`).text();
  expect(dbs).toHaveLength(1);
  expect(unit).toContain(`\nEnvironment=DATABASE_URL=${dbs[0].path}\n`);
});

/**
 * Runs the image in containers as recommended: without privileges, with a read-only file system except for the
 * volume, and with little memory. Uses podman and runc without systemd, with configuration and storage in a
 * temporary directory, so that no image, container, volume or setting of this machine changes.
 */
import { mkdirSync } from "node:fs";
import { newToken } from "../../src/domain/token.ts";
import { sendCall, type TestServer } from "../http/server.ts";
import { freePort } from "../postgres/instance.ts";
import { makeDirectory } from "../support/directory.ts";
import { runProgram } from "../support/program.ts";

/** Memory limit of a container, if control groups can enforce it. */
export const MEMORY_LIMIT_BYTES = 128 * 2 ** 20;

interface RunOptions {
  /** The name of a volume, or the path of a directory. Default: a new volume. */
  readonly volume?: string;
  readonly settings?: Readonly<Record<string, string>>;
  /** Arguments after the name of the image. */
  readonly args?: readonly string[];
}

export type Container = Awaited<ReturnType<Awaited<ReturnType<typeof openPodman>>["serve"]>>;

const rights = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--pids-limit=64"];
const memory = [`--memory=${MEMORY_LIMIT_BYTES}b`, `--memory-swap=${MEMORY_LIMIT_BYTES}b`];
/** Maximum lifetime of a container in seconds, in case the test is killed. */
const lifetime = "--timeout=120";

/** Needs no systemd, journal, high limits or bridge, which a machine may not have. */
function configure(directory: string): Record<string, string> {
  const containers = `
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1024:4096"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "${directory}/tmp"
[network]
network_config_dir = "${directory}/networks"
`;
  // vfs works on every file system, but copies the image for each container.
  const storage = `
[storage]
driver = "vfs"
graphroot = "${directory}/images"
runroot = "${directory}/run"
`;
  return { "containers.conf": containers, "storage.conf": storage };
}

/** @param archive path of the image, in the format of `docker save` */
export async function openPodman(archive: string) {
  await using resources = new AsyncDisposableStack();
  const directory = resources.use(makeDirectory());
  mkdirSync(directory.at("networks"));
  for (const [name, text] of Object.entries(configure(directory.path))) {
    await Bun.write(directory.at(name), text);
  }
  const env = {
    PATH: Bun.env["PATH"] ?? "",
    HOME: directory.path,
    CONTAINERS_CONF: directory.at("containers.conf"),
    CONTAINERS_STORAGE_CONF: directory.at("storage.conf"),
    // podman runs HEALTHCHECK with systemd. Here the tests run it.
    DISABLE_HC_SYSTEMD: "true",
  };

  const podman = (...args: string[]) => runProgram(["podman", ...args], { env });
  /** @returns its output @throws if it fails */
  async function ask(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await podman(...args);
    if (code !== 0) throw new Error(`podman ${args.join(" ")}: ${stderr}`);
    return stdout.trim();
  }

  resources.defer(async () => {
    await podman("rm", "--all", "--force", "--time=0");
  });
  const image = /Loaded image(?:\(s\))?: (\S+)/.exec(await ask("load", "--input", archive))?.[1];
  if (image === undefined) throw new Error(`podman finds no image in ${archive}`);
  // Not every machine can limit it.
  const { code } = await podman("run", "--rm", "--network=none", ...memory, image, "version");

  const wordsOf = ({ volume, settings = {}, args = [] }: RunOptions): string[] => [
    lifetime,
    "--network=host",
    "--security-opt=no-new-privileges",
    ...rights,
    ...(code === 0 ? memory : []),
    ...(volume === undefined ? [] : [`--volume=${volume}:/data`]),
    ...Object.entries(settings).map(([name, value]) => `--env=${name}=${value}`),
    image,
    ...args,
  ];

  /**
   * Starts a server, with a new token unless the settings have API_TOKEN. Disposing of it removes the container, and
   * keeps a volume that has a name.
   */
  async function serve(options: RunOptions) {
    // HEALTHCHECK must know it, so the server cannot choose one.
    const port = freePort();
    const settings = { PORT: `${port}`, API_TOKEN: newToken(), ...options.settings };
    const token = settings.API_TOKEN;
    const id = await ask("run", "--detach", ...wordsOf({ ...options, settings }));
    const inspect = (template: string) => ask("inspect", "--format", template, id);
    const url = `http://127.0.0.1:${port}`;
    for (;;) {
      const health = await fetch(`${url}/api/v1/health`).catch(() => null);
      if (health?.status === 200) break;
      if ((await inspect("{{.State.Status}}")) !== "running") {
        const { stdout, stderr } = await podman("logs", id);
        throw new Error(`The container has ended: ${stdout}${stderr}`);
      }
    }
    return {
      url,
      writeToken: token,
      /** Process id of its first process, outside the container. */
      pid: Number(await inspect("{{.State.Pid}}")),
      /** @returns the output of `podman inspect` for a template such as `{{.State.ExitCode}}` */
      inspect,
      call: (...[method, path, request = {}]: Parameters<TestServer["call"]>) =>
        sendCall(url, token, method, path, request),
      /** @returns the exit code of HEALTHCHECK */
      checkHealth: async () => (await podman("healthcheck", "run", id)).code,
      /** Sends SIGTERM, and SIGKILL after this many seconds. @returns the exit code, 137 after SIGKILL */
      async stop(graceS: number) {
        await ask("stop", `--time=${graceS}`, id);
        return Number(await inspect("{{.State.ExitCode}}"));
      },
      async [Symbol.asyncDispose]() {
        await podman("rm", "--force", "--time=0", "--volumes", id);
      },
    };
  }

  const kept = resources.move();
  return {
    inspectImage: async (): Promise<any> => JSON.parse(await ask("image", "inspect", image))[0],
    run: (options: RunOptions) => podman("run", "--rm", ...wordsOf(options)),
    serve,
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

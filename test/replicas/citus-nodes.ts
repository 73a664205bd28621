/** Nodes of the Citus cluster of TEST_CITUS_CLUSTER, a command that starts a node and the directory of the cluster. */
import { signalServer } from "../postgres/instance.ts";

const [command, directory] = Bun.env["TEST_CITUS_CLUSTER"]?.split(" ") ?? [];

export const canKillNodes: boolean = directory !== undefined;

/** Statements that make Citus finish interrupted transactions sooner. */
export const recoverOften: readonly string[] = [
  "alter system set citus.recover_2pc_interval = '1s'",
  "select pg_reload_conf()",
];

export function killNode(node: string): void {
  signalServer(`${directory}/${node}`, "SIGKILL");
}

/** Repeated, because processes of a killed server may still be ending. */
export async function startNode(node: string): Promise<void> {
  const args = [`${command}`, "start", `${directory}`, node];
  for (let attempts = 1; ; attempts += 1) {
    const starting = Bun.spawn(args, { stdio: ["ignore", "ignore", "ignore"] });
    if ((await starting.exited) === 0) return;
    if (attempts === 20) throw new Error(`${node} does not start`);
    await Bun.sleep(500);
  }
}

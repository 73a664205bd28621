/**
 * Two or three servers with `--standby`, a bucket and a fault, in rounds: what was acknowledged, lost and done twice, when
 * writes went on elsewhere, and whether somebody had to act. It prints a line of JSON for each round, and a table.
 * usage: takeover.ts [--kinds a,b] [--rounds N] [--first N] [--delays 0,10,100] [--takeover 3,10] [--parallel 4] [--keep]
 * [--binary FILE] [--seconds N] [--out FILE]. Delays are in ms, of a round trip. As root: it mounts disks and attaches strace.
 */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { inject } from "../test/binary/strace.ts";
import {
  ask,
  createUser,
  fateOf,
  isFollowing,
  isPrimary,
  lookUp,
  type Machine,
  makeMachine,
  openLink,
  RESTART_MS,
  startClient,
  until,
} from "./machines.ts";
import { median } from "./rounds.ts";

const text = { type: "string" } as const;
const { values: flags } = parseArgs({
  args: Bun.argv.slice(2),
  options: {
    ...{ kinds: text, seconds: text, out: text },
    keep: { type: "boolean" },
    rounds: { ...text, default: "30" },
    first: { ...text, default: "0" },
    delays: { ...text, default: "0,10,100" },
    takeover: { ...text, default: "3,10" },
    parallel: { ...text, default: "4" },
    binary: { ...text, default: "dist/user-api" },
    /** One round, in this process. */
    round: text,
  },
});
const binary = resolve(flags.binary);

interface Plan {
  readonly kind: string;
  readonly index: number;
  readonly takeoverS: number;
  /** Of each machine. */
  readonly delaysMs: readonly number[];
}

const seconds = (ms: number | null) => (ms === null ? null : Math.round(ms) / 1000);

/** Starts the servers and the client. @throws {Error} if that is not possible */
async function prepare(plan: Plan) {
  const { kind, index, takeoverS, delaysMs } = plan;
  const place = mkdtempSync(join(tmpdir(), `takeover-${kind}-${index}-`));
  const objects = new Map<string, Buffer>();
  const isAlone = kind === "u41" && index % 2 === 0;
  const standbySettings = { STANDBY: "true", TAKEOVER_SECONDS: `${takeoverS}` };
  const machines: Machine[] = [];
  for (const [at, delayMs] of delaysMs.entries()) {
    const link = await openLink(objects, delayMs);
    link.errors = kind === "errors" ? 0.05 : 0;
    machines.push(makeMachine(binary, place, `${at}`, link, isAlone ? {} : standbySettings));
  }
  const [primary, standby = primary] = machines;
  if (primary === undefined || standby === undefined) throw new Error("no machine");
  if (kind === "full") {
    process.on("exit", () => Bun.spawnSync(["umount", "--lazy", primary.directory]));
    const disk = ["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", primary.directory];
    if (!Bun.spawnSync(disk).success) throw new Error("no disk can be mounted");
  }
  const startedMs = performance.now();
  const together = kind === "start" ? machines : [primary];
  for (const machine of together) machine.start();
  const userId = await createUser(together);
  const startMs = performance.now() - startedMs;
  for (const machine of machines.filter((each) => !together.includes(each))) {
    machine.start();
    if (!(await until(() => isFollowing(machine), 90_000)))
      throw new Error(`a machine does not follow: ${machine.log()}`);
  }
  const rate = { fast: null, follow: 2_000 }[kind];
  const clients = kind === "fast" ? 8 : 128;
  const client = startClient(machines, userId, clients, rate === undefined ? 300 : rate);
  // A primary notices a new standby with its next heartbeat, at most 5 s later.
  await Bun.sleep(kind === "fast" ? Number(flags.seconds ?? "60") * 1000 : 6_000);
  const round = {
    ...{ plan, place, objects, machines, primary, standby, client, startMs },
    takeoverMs: takeoverS * 1000,
    faultMs: performance.now(),
    notes: [] as unknown[],
    broken: [] as string[],
    /** What ends the faults. */
    ends: [] as (() => unknown)[],
    begin(machine: Machine | null = primary) {
      round.faultMs = performance.now();
      client.beginFault(machine);
    },
    /** Waits until another machine has acknowledged a write, and a little longer. */
    async elsewhere(): Promise<void> {
      await until(() => client.firstMs !== null, 2 * round.takeoverMs + 25_000);
      await Bun.sleep(3_000);
    },
    async loseMachine(): Promise<void> {
      round.begin();
      await primary.kill();
      primary.loseData();
      await round.elsewhere();
    },
    /** Counted from the last write that the primary has acknowledged: not each one needs more of the disk. */
    async failDisk(end: () => unknown): Promise<void> {
      round.ends.push(end);
      round.begin();
      await round.elsewhere();
      round.faultMs = client.lastMs(primary);
    },
    async cut(...directions: ("requests" | "answers")[]): Promise<void> {
      round.begin();
      const fate = fateOf(index, 2);
      primary.link.cut(Object.fromEntries(directions.map((each) => [each, fate])));
      round.ends.push(primary.link.heal);
      await round.elsewhere();
    },
  };
  return round;
}

type Round = Awaited<ReturnType<typeof prepare>>;

/** Watches how old the copy is: at least as old as what it lacks although it was acknowledged. */
async function watchAge({ standby, client: { times }, broken }: Round, during: Promise<unknown>) {
  const seen = { samples: 0, reportedS: 0, trueS: 0, refused: 0, untrue: 0 };
  let isOver = false;
  const ending = during.finally(() => {
    isOver = true;
  });
  for (; !isOver; await Bun.sleep(100)) {
    const sentMs = performance.now();
    const { status, age, list } = await ask(standby, "/orders?sort=-id&limit=1");
    const newest = list[0]?.id ?? 0;
    const missing = times.slice(newest + 1, newest + 2_000).filter((time) => time !== undefined);
    const trueS = (sentMs - Math.min(sentMs, ...missing)) / 1000;
    const isRefused = status !== 200;
    seen.samples += 1;
    seen.refused += Number(isRefused);
    seen.untrue += Number(!isRefused && age < trueS);
    seen.trueS = Math.max(seen.trueS, trueS);
    seen.reportedS = Math.max(seen.reportedS, age);
  }
  await ending;
  if (seen.untrue > 0) broken.push(`${seen.untrue} ages are not true`);
  if (seen.reportedS > 3 || seen.refused > 0) broken.push("an age above 3 s, or none");
  return seen;
}

const kinds: Readonly<Record<string, (round: Round) => Promise<unknown>>> = {
  kill: ({ loseMachine }) => loseMachine(),
  async stop({ primary, begin }) {
    begin();
    primary.signal("SIGSTOP");
    await Bun.sleep(20_000);
    primary.signal("SIGCONT");
  },
  /** Writes alone, or reads as well. */
  async eio({ primary, plan, failDisk }) {
    const calls = "pwrite64,pwritev,fsync,fdatasync,ftruncate";
    const reads = plan.index % 2 === 0 ? "" : ",pread64";
    await failDisk(await inject(primary.pid(), { calls: calls + reads, error: "EIO" }));
  },
  async full({ primary, failDisk }) {
    const filler = join(primary.directory, "filler");
    Bun.spawnSync(["dd", "if=/dev/zero", `of=${filler}`, "bs=4k"], { stderr: "ignore" });
    await failDisk(() => rmSync(filler));
  },
  requests: ({ cut }) => cut("requests"),
  answers: ({ cut }) => cut("answers"),
  cut: ({ cut }) => cut("requests", "answers"),
  /** The storage goes away for all while the standby takes over. Counted from when it is back. */
  async away({ primary, machines, takeoverMs, plan: { index }, begin, client, elsewhere, notes }) {
    begin();
    await primary.kill();
    primary.loseData();
    await Bun.sleep(takeoverMs - 500 + 250 * (index % 6));
    for (const { link } of machines) link.cut({ requests: fateOf(index), answers: fateOf(index) });
    await Bun.sleep(15_000);
    for (const { link } of machines) link.heal();
    if (client.firstMs === null) begin();
    else notes.push("taken over before the storage was away");
    await elsewhere();
  },
  errors: ({ loseMachine }) => loseMachine(),
  /** Nothing fails: both have started in the same moment. */
  start: () => Bun.sleep(3_000),
  /** The primary has a record that the archive does not have, begins with a new base, and is lost in one of the steps. */
  async anew({ primary, standby, place, plan, loseMachine, notes }) {
    // Otherwise it takes over before the primary begins.
    standby.signal("SIGSTOP");
    await primary.kill();
    const file = join(place, "users.ndjson");
    writeFileSync(file, '{"email":"offline@example.com"}\n');
    Bun.spawnSync([binary, "import", "users", file], { env: primary.environment });
    const step = ["generations/", "chunks/", "bases/"][plan.index % 3] ?? "";
    const begun = Promise.withResolvers<string>();
    primary.link.onCall = ({ method, key, body }) => {
      if (method !== "PUT" || !key.startsWith(step)) return;
      void primary.kill();
      begun.resolve(`lost at ${key} ${key.startsWith("gen") ? body : ""}`);
    };
    primary.start();
    notes.push(await Promise.race([begun.promise, Bun.sleep(60_000).then(() => "not begun")]));
    primary.link.onCall = () => {};
    standby.signal("SIGCONT");
    await loseMachine();
  },
  /** The standby has just been restarted when the primary is lost. */
  async restart({ standby, plan: { index }, loseMachine }) {
    await standby.kill(index % 2 === 0 ? "SIGKILL" : "SIGTERM");
    standby.start();
    await Bun.sleep([300, 1_000, 2_500][index % 3] ?? 0);
    await loseMachine();
  },
  three: ({ loseMachine }) => loseMachine(),
  fast: ({ loseMachine }) => loseMachine(),
  /** The standby is far from the storage, while the primary writes much and imports. */
  async follow(round) {
    const { primary, client, place, notes, broken } = round;
    const before = client.acknowledged.size;
    const writingS = Number(flags.seconds ?? "300");
    const written = await watchAge(round, Bun.sleep(writingS * 1000));
    notes.push({ writesPerS: (client.acknowledged.size - before) / writingS, ...written });
    client.rate = 50;
    const file = join(place, "users.ndjson");
    const lines = Array.from({ length: 200_000 }, (_, at) => `{"email":"i${at}@example.com"}`);
    writeFileSync(file, lines.join("\n"));
    const startedMs = performance.now();
    const imported = Bun.spawn([binary, "import", "users", file], {
      env: primary.environment,
      stderr: "ignore",
    });
    const seen = await watchAge(round, imported.exited);
    notes.push({ importS: seconds(performance.now() - startedMs), ...seen });
    if (imported.exitCode !== 0) broken.push("the import failed");
  },
  /** kill -9, three starts without the storage, then one with it: no base is written. */
  async u41({ primary, plan, objects, notes, broken, client, begin }) {
    const basesOf = () => `${[...objects.keys()].filter((key) => key.startsWith("bases/"))}`;
    const before = basesOf();
    await primary.kill();
    primary.link.cut({ requests: fateOf(plan.index) });
    for (let attempt = 0; attempt < 3; attempt += 1) {
      primary.start();
      await until(() => primary.exits.length > attempt, 30_000);
      await primary.kill();
    }
    // Without `--standby`, each ends.
    notes.push(...primary.exits.splice(0));
    primary.link.heal();
    primary.start();
    begin(null);
    await until(() => client.firstMs !== null, 60_000);
    await Bun.sleep(5_000);
    notes.push({ before, after: basesOf() });
    if (before !== basesOf()) broken.push("a base was uploaded");
  },
};

/** Measurements, and no rounds of the table. */
const isSingle = (kind: string) => ["fast", "follow", "u41"].includes(kind);

function aimOf({ kind, takeoverS, delaysMs }: Plan): number | null {
  if (kind === "fast") return 6;
  if (isSingle(kind) || kind === "start") return null;
  if (kind === "answers") return 2 * takeoverS + 3;
  return takeoverS + (Math.max(...delaysMs) >= 100 ? 3 : 1);
}

/** @returns when one server acknowledged, and when all others followed, in ms since now */
async function settle({ machines, client, takeoverMs, broken }: Round) {
  const startMs = performance.now();
  const boundMs = 2 * takeoverMs + 10_000;
  let oneMs: number | null = null;
  const hasSettled = await until(
    async () => {
      const roles = await Promise.all(machines.map(isPrimary));
      const found = machines[roles.indexOf(true)];
      const isOne = roles.filter(Boolean).length === 1;
      if (found === undefined || !isOne || client.lastMs(found) <= startMs) return false;
      oneMs ??= performance.now() - startMs;
      const others = machines.filter((machine) => machine !== found);
      return !(await Promise.all(others.map(isFollowing))).includes(false);
    },
    // Longer than the bound, to tell what is late from what never comes.
    boundMs + 80_000,
    200,
  );
  const allMs = hasSettled ? performance.now() - startMs : null;
  if ((oneMs ?? Infinity) > boundMs) broken.push("late: none acknowledged");
  if ((allMs ?? Infinity) > boundMs + 10_000 + copyMsOf(machines))
    broken.push("late: not all followed");
  return { oneMs, allMs };
}

/** How long the slowest server has needed to restore its last copy. */
function copyMsOf(machines: readonly Machine[]): number {
  const event = /"time":"([^"]+)".*"event":"(listening|database set aside|archive restored)"/g;
  const times = machines.map((machine) => {
    let [beganMs, copyMs] = [0, 0];
    for (const [, time = "", name] of readFileSync(machine.log(), "utf8").matchAll(event)) {
      if (name === "archive restored") copyMs = Date.parse(time) - beganMs;
      else beganMs = Date.parse(time);
    }
    return copyMs;
  });
  return Math.max(...times);
}

/** Looks the acknowledged writes up, on the primary and on the others. */
async function verify({ machines, client: { acknowledged }, broken }: Round) {
  const missingIn = (found: ReadonlyMap<string, readonly number[]>) =>
    [...acknowledged].filter(([key, ids]) => [...ids].some((id) => !found.get(key)?.includes(id)));
  let primary: Machine | undefined;
  await until(async () => {
    primary = machines[(await Promise.all(machines.map(isPrimary))).indexOf(true)];
    return primary !== undefined;
  }, 30_000);
  for (const machine of machines.filter((each) => each !== primary)) {
    const hasAll = async () => missingIn(await lookUp(machine)).length === 0;
    if (!(await until(hasAll, 10_000).catch(() => false)))
      broken.push(`${machine.name} lacks writes`);
  }
  const stored = primary === undefined ? new Map<string, number[]>() : await lookUp(primary);
  const doubled = (times: number) => times > 1;
  const answered = [...acknowledged.values()].map(({ size }) => size).filter(doubled);
  const done = [...stored.values()].map(({ length }) => length).filter(doubled);
  return { lost: missingIn(stored).length, twice: answered.length + done.length };
}

async function run(plan: Plan) {
  const load = loadavg()[0];
  const round = await prepare(plan);
  const { machines, client, broken, notes, place, ends, startMs } = round;
  await kinds[plan.kind]?.(round);
  for (const end of ends) await end();
  for (const { link } of machines) link.errors = 0;
  await Bun.sleep(RESTART_MS);
  for (const machine of machines) if (machine.isDown) machine.start();
  const { oneMs, allMs } = await settle(round);
  await Bun.sleep(1_000);
  await client.end();
  const { lost, twice } = await verify(round);
  if (lost > 0 || twice > 0) broken.push(`${lost} lost, ${twice} done twice`);
  for (const machine of machines) broken.push(...machine.exits.map((exit) => `ended: ${exit}`));
  for (const machine of machines) await machine.kill();
  const { firstMs } = client;
  const elsewhereMs = firstMs === null ? null : firstMs - round.faultMs;
  const logs = broken.length > 0 || flags.keep ? place : null;
  if (logs === null) process.on("exit", () => rmSync(place, { recursive: true }));
  const times = { oneS: seconds(oneMs), allS: seconds(allMs), copyS: seconds(copyMsOf(machines)) };
  return {
    ...{ ...plan, acknowledged: client.acknowledged.size, lost, twice },
    firstS: seconds(plan.kind === "start" ? startMs : elsewhereMs),
    ...{ aimS: aimOf(plan), ...times, hadToAct: allMs === null },
    ...{ notes, statuses: client.statuses, load, broken, logs },
  };
}

type Result = Plan & { readonly broken: readonly string[] } & Partial<
    Awaited<ReturnType<typeof run>>
  >;

/** @returns the rounds, spread evenly over the times and delays, of all machines, the first one, or the others */
function makePlans(): Plan[] {
  const takeovers = flags.takeover.split(",").map(Number);
  const delays = flags.delays.split(",").map(Number);
  const names = flags.kinds?.split(",") ?? Object.keys(kinds).filter((kind) => !isSingle(kind));
  const planOf = (kind: string, index: number): Plan => {
    if (!(kind in kinds)) throw new Error(`${kind} is none of ${Object.keys(kinds)}`);
    const turn = Math.floor(index / takeovers.length);
    const delayMs = delays[turn % delays.length] ?? 0;
    const where = Math.floor(turn / delays.length) % 3;
    const [own, other] = [where === 2 ? 0 : delayMs, where === 1 ? 0 : delayMs];
    const special = { three: [own, other, other], fast: [10, 10], follow: [0, 100], u41: [own] };
    const delaysMs = Object.entries(special).find(([name]) => name === kind)?.[1] ?? [own, other];
    const takeoverS = kind === "fast" ? 3 : (takeovers[index % takeovers.length] ?? 10);
    return { kind, index, takeoverS, delaysMs };
  };
  return Array.from({ length: Number(flags.rounds) }, (_, at) => Number(flags.first) + at).flatMap(
    (index) => names.map((kind) => planOf(kind, index)),
  );
}

const children = new Set<Bun.Subprocess>();

/** Runs a round in a process that has the bucket and the client. */
async function runApart(plan: Plan): Promise<Result> {
  const given = ["--round", JSON.stringify(plan), "--binary", binary, flags.keep ? "--keep" : ""];
  if (flags.seconds !== undefined) given.push("--seconds", flags.seconds);
  // Requests to a server that is stopped wait.
  const env = { ...Bun.env, BUN_CONFIG_MAX_HTTP_REQUESTS: "8192" };
  const command = [process.execPath, import.meta.path, ...given.filter((word) => word !== "")];
  const child = Bun.spawn(command, { env, stderr: "inherit", timeout: 900_000 });
  children.add(child);
  const line = (await child.stdout.text()).trim();
  children.delete(child);
  const result = line === "" ? { ...plan, broken: ["the round did not end"] } : JSON.parse(line);
  console.log(JSON.stringify(result));
  if (flags.out !== undefined) appendFileSync(flags.out, `${JSON.stringify(result)}\n`);
  return result;
}

function printTable(results: readonly Result[]): void {
  const names =
    "kind takeover_s delay_ms rounds acknowledged lost twice first_median first_max in_time";
  console.log(`\n${names} all_max had_to_act broken`.replaceAll(" ", "\t"));
  const groups = Map.groupBy(results, ({ kind, takeoverS, delaysMs }) =>
    [kind, takeoverS, Math.max(...delaysMs)].join("\t"),
  );
  for (const [name, rows] of groups) {
    const sum = (fieldOf: (row: Result) => number | boolean | undefined) =>
      rows.reduce((total, row) => total + Number(fieldOf(row) ?? 0), 0);
    const first = rows.flatMap(({ firstS }) => firstS ?? []);
    const inTime = sum(({ firstS, aimS }) => firstS != null && aimS != null && firstS <= aimS);
    const counts = [
      sum((row) => row.acknowledged),
      sum((row) => row.lost),
      sum((row) => row.twice),
    ];
    const times = [median(first), Math.max(...first), inTime];
    const ends = [Math.max(...rows.flatMap(({ allS }) => allS ?? [])), sum((row) => row.hadToAct)];
    const cells = [rows.length, ...counts, ...times, ...ends, sum((row) => row.broken.length > 0)];
    console.log([name, ...cells].join("\t"));
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(1));
process.on("exit", () => {
  for (const child of children) child.kill();
});
if (flags.round !== undefined) {
  const plan: Plan = JSON.parse(flags.round);
  console.log(
    JSON.stringify(await run(plan).catch((error) => ({ ...plan, broken: [`${error}`] }))),
  );
  process.exit();
}
const results: Result[] = [];
const work = async (queue: Plan[]) => {
  for (let plan = queue.shift(); plan; plan = queue.shift()) results.push(await runApart(plan));
};
/** These need the machine for themselves. */
const isHeavy = ({ kind }: Plan) => kind === "fast" || kind === "follow";
const light = makePlans().filter((plan) => !isHeavy(plan));
await Promise.all(Array.from({ length: Number(flags.parallel) }, () => work(light)));
await work(makePlans().filter(isHeavy));
printTable(results);

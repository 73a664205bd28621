/** Numbers the changes of the outbox. One call runs at a time, in whichever process. It holds up no write. */
import type { Feed } from "../../domain/change.ts";
import { itemAt } from "../engine/batch.ts";
import { createSingleFlight } from "../engine/single-flight.ts";
import { type Database, longTransaction, type Session } from "../server/connection.ts";
import { isReadOnly } from "../server/errors.ts";
import { whenUnnumbered } from "./outbox.ts";

const MAX_NUMBERED = 20_000;

const isBehind = whenUnnumbered("feed_state")
  .map((condition) => `exists (select from change_outbox where ${condition})`)
  .join(" or ");

export const feedStatus = `
  select
    name as feed, first, last, is_current as "isCurrent",
    ${isBehind} as "isBehind"
  from feed_state
`;

export interface FeedStatus extends Feed {
  /** Whether the feed is the one that the last server has left. */
  readonly isCurrent: boolean;
  readonly isBehind: boolean;
}

async function readStatus(session: Session): Promise<FeedStatus> {
  return itemAt(await session.all<FeedStatus>(feedStatus), 0);
}

export async function lockFeed(session: Session): Promise<void> {
  await session.all("select pg_catalog.set_config('lock_timeout', '10s', true)");
  // As `number_changes`.
  await session.script("lock table feed_lock in share update exclusive mode");
}

export async function callNumbering(session: Session): Promise<number> {
  const call = "select number_changes($1::integer) as numbered";
  return (await session.first<{ numbered: number }>(call, MAX_NUMBERED))?.numbered ?? 0;
}

/**
 * Numbers changes, at most `MAX_NUMBERED`, and begins a new feed if it must. Concurrent calls share a run.
 * @returns the state afterwards. It is behind if another call would number changes that were committed before this one: with
 * later ones, it would be behind for as long as others write. A server that cannot write is never behind
 */
export type NumberChanges = () => Promise<FeedStatus>;

/** @param readOnly whether the process never writes: it shows what others have numbered */
export function createNumbering(db: Database, readOnly: boolean): NumberChanges {
  const share = createSingleFlight<FeedStatus>();

  async function number(): Promise<FeedStatus> {
    const status = await db.run("background", readStatus);
    const unnumbered = { ...status, isBehind: false };
    if (readOnly) return unnumbered;
    if (status.isCurrent && !status.isBehind) return status;
    let count: number;
    try {
      // A new feed numbers all changes, and may count all records.
      const options = status.isCurrent ? {} : longTransaction;
      count = await db.run("background", callNumbering, options);
    } catch (error) {
      if (isReadOnly(error)) return unnumbered;
      throw error;
    }
    return { ...(await db.run("background", readStatus)), isBehind: count >= MAX_NUMBERED };
  }

  return () => share("", number);
}

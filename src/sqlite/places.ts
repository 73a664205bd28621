/** The places of imported orders among those of their user (`user_position`), which stand by id. */
import type { Database } from "bun:sqlite";

/** The places of one transaction. */
export interface Places {
  /**
   * To be called for each new order, before it is inserted.
   * @returns its place for now: the last one
   */
  give(user_id: number, id: number): number;
  /** Moves those that came late, and all behind them, once a user: to be called last. */
  finish(): void;
}

export function preparePlaces(db: Database): () => Places {
  const last = db.prepare<{ user_position: number; id: number }, { user_id: number }>(`
    select user_position, id
    from orders
    where user_id = $user_id
    order by user_position desc
    limit 1
  `);
  // With the plus it walks the user's orders from the last one, and not all orders by id.
  const lastBefore = db.prepare<{ user_position: number }, { user_id: number; id: number }>(`
    select user_position
    from orders
    where user_id = $user_id and +id < $id
    order by user_position desc
    limit 1
  `);
  const number = db.prepare<null, { user_id: number; before: number }>(`
    update orders
    set user_position = place.user_position
    from (
      select id, $before + row_number() over (order by id) as user_position
      from orders
      where user_id = $user_id and user_position > $before
    ) as place
    where orders.id = place.id and orders.user_position <> place.user_position
  `);

  return () => {
    /** By user: the lowest id that came after a higher one. */
    const late = new Map<number, number>();
    return {
      give(user_id, id) {
        const end = last.get({ user_id });
        if (end === null) return 1;
        if (id < end.id) late.set(user_id, Math.min(late.get(user_id) ?? id, id));
        return end.user_position + 1;
      },
      finish() {
        for (const [user_id, id] of late) {
          number.run({ user_id, before: lastBefore.get({ user_id, id })?.user_position ?? 0 });
        }
        late.clear();
      },
    };
  };
}

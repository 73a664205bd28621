/** The places of imported orders among those of their user (`user_position`), which stand by id. */
import type { Database } from "bun:sqlite";

/** The places of one transaction. */
export interface UserPositions {
  /**
   * To be called for each new order, before it is inserted.
   * @returns its place for now: the last one
   */
  add(user_id: number, id: number): number;
  /** Moves those that came late, and all behind them, once a user: to be called last. */
  renumber(): void;
}

export function prepareUserPositions(db: Database): () => UserPositions {
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
  const updatePositions = db.prepare<null, { user_id: number; before: number }>(`
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
    const first_late_ids = new Map<number, number>();
    return {
      add(user_id, id) {
        const last_order = last.get({ user_id });
        if (last_order === null) return 1;
        if (id < last_order.id)
          first_late_ids.set(user_id, Math.min(first_late_ids.get(user_id) ?? id, id));
        return last_order.user_position + 1;
      },
      renumber() {
        for (const [user_id, id] of first_late_ids) {
          updatePositions.run({
            user_id,
            before: lastBefore.get({ user_id, id })?.user_position ?? 0,
          });
        }
        first_late_ids.clear();
      },
    };
  };
}

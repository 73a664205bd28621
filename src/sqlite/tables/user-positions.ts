/** Positions of imported and moved orders among the orders of their user (`user_position`). They ascend with the ids. */
import type { Database } from "bun:sqlite";

/** @returns a function that starts assigning positions within a transaction */
export function prepareUserPositions(db: Database) {
  const last = db.prepare<{ user_position: number; id: number }, { user_id: number }>(`
    select user_position, id
    from orders
    where user_id = +$user_id
    order by user_position desc
    limit 1
  `);
  // The unary plus makes SQLite scan the user's orders from the last one, not all orders by id.
  const lastBefore = db.prepare<{ user_position: number }, { user_id: number; id: number }>(`
    select user_position
    from orders
    where user_id = +$user_id and +id < $id
    order by user_position desc
    limit 1
  `);
  const updatePositions = db.prepare<null, { user_id: number; before: number }>(`
    update orders
    set user_position = numbered.user_position
    from (
      select id, $before + row_number() over (order by id) as user_position
      from orders
      where user_id = +$user_id and user_position > $before
    ) as numbered
    where orders.id = numbered.id and orders.user_position <> numbered.user_position
  `);

  return () => {
    /** The lowest id of each user from which on positions change. */
    const firstIds = new Map<number, number>();
    const changeFrom = (userId: number, id: number) =>
      firstIds.set(userId, Math.min(firstIds.get(userId) ?? id, id));
    return {
      /**
       * Call it for each new order, before the insert, and for each one that moves to the user.
       * @returns a preliminary position, after all other orders of the user
       */
      add(userId: number, id: number): number {
        const lastOrder = last.get({ user_id: userId });
        if (lastOrder === null) return 1;
        if (id < lastOrder.id) changeFrom(userId, id);
        return lastOrder.user_position + 1;
      },
      /** Call it for each order that has left its user. */
      remove: changeFrom,
      /** Renumbers the orders of each user from the first out-of-sequence one on. Call it after the last order. */
      renumber() {
        for (const [userId, id] of firstIds) {
          updatePositions.run({
            user_id: userId,
            before: lastBefore.get({ user_id: userId, id })?.user_position ?? 0,
          });
        }
        firstIds.clear();
      },
    };
  };
}

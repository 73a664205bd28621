/**
 * The numbers of orders among those of their user (`user_position`), by which a page at any offset is found. They ascend
 * with the ids, and are consecutive in each block. New orders fill half of a block, so that others fit in between: an
 * order that is imported or moved renumbers one block.
 */
import type { Database } from "bun:sqlite";

/** Numbers of a block. The first block has 1, 2, 3 … */
const BLOCK = 2 ** 15;

/** Whether a position is the first one of a block. */
export const BEGINS_BLOCK = `user_position % ${BLOCK} = 1`;

/** The position of a new order of the user `?1`: the one after the last order, or the first one of a new block. */
export const NEXT_USER_POSITION = `(
  select coalesce(
    case when (last - 1) % ${BLOCK} < ${BLOCK / 2 - 1} then last + 1
      else (last - 1) / ${BLOCK} * ${BLOCK} + ${BLOCK} + 1 end,
    1
  )
  from (select max(user_position) as last from orders where user_id = +?1)
)`;

/** @param position of the order with the number `at`, from 0 */
const renumberTo = (position: string) => `
  update orders
  set user_position = numbered.user_position
  from (
    select id, ${position} as user_position
    from (
      select id, row_number() over (order by id) - 1 as at
      from orders
      where user_id = +$user_id and user_position between $first and $end
    )
  ) as numbered
  where orders.id = numbered.id and orders.user_position <> numbered.user_position
`;

export function prepareUserNumbering(db: Database) {
  const lastPosition = db.prepare<{ last: number | null }, { user_id: number; end: number }>(`
    select max(user_position) as last
    from orders
    where user_id = +$user_id and user_position <= $end
  `);
  // Within a transaction, orders that have moved leave gaps, and others have the position of the one before.
  const idAt = db.prepare<{ id: number | null }, { user_id: number; position: number }>(`
    select min(id) as id
    from orders
    where user_id = +$user_id and user_position = (
      select max(user_position)
      from orders
      where user_id = +$user_id and user_position <= $position
    )
  `);

  return (userId: number) => {
    const blocks: { last: number; count: number }[] = [];
    let total = 0;
    for (let end = Number.MAX_SAFE_INTEGER; end > 0; ) {
      const { last = null } = lastPosition.get({ user_id: userId, end }) ?? {};
      // A damaged index can lead back.
      if (last === null || last > end) break;
      const count = ((last - 1) % BLOCK) + 1;
      blocks.unshift({ last, count });
      total += count;
      end = last - count;
    }

    /** @returns the position up to which the user has this many orders; that of the last order if there are fewer */
    function positionAt(count: number): number {
      let rest = count;
      for (const block of blocks) {
        if (rest <= block.count) return block.last - block.count + rest;
        rest -= block.count;
      }
      return blocks.at(-1)?.last ?? 0;
    }

    /** Counts the orders up to this id by binary search: ids ascend with the positions. */
    function countUpTo(id: number): number {
      let low = 0;
      let high = total;
      while (low < high) {
        const count = Math.ceil((low + high) / 2);
        const position = positionAt(count);
        if ((idAt.get({ user_id: userId, position })?.id ?? 0) <= id) low = count;
        else high = count - 1;
      }
      return low;
    }

    return { total, positionAt, countUpTo };
  };
}

/** @returns a function that starts assigning positions to imported and moved orders, within a transaction */
export function prepareUserPositions(db: Database) {
  const numberingOf = prepareUserNumbering(db);
  const last = db.prepare<{ id: number | null; next: number }, [userId: number]>(`
    select max(id) as id, ${NEXT_USER_POSITION} as next
    from orders
    where user_id = +?1 and user_position = (
      select max(user_position)
      from orders
      where user_id = +?1
    )
  `);
  const positionOf = db.prepare<{ user_position: number }, { id: number }>(`
    select user_position
    from orders
    where id = $id
  `);
  const countBetween = db.prepare<{ orders: number }, Range>(`
    select count(*) as orders
    from orders
    where user_id = +$user_id and user_position between $first and $end
  `);
  type Range = Record<"user_id" | "first" | "end", number>;
  const updateBlock = db.prepare<null, Range>(renumberTo("$first + at"));
  const halfFilled = `at / ${BLOCK / 2} * ${BLOCK} + at % ${BLOCK / 2} + 1`;
  const updateAll = db.prepare<null, Range>(renumberTo(halfFilled));

  return () => {
    /** The positions from which on blocks change, by user and block. */
    const changed = new Map<string, Range>();
    function changeFrom(userId: number, position: number): void {
      const end = Math.ceil(position / BLOCK) * BLOCK;
      const key = `${userId} ${end}`;
      const first = Math.min(changed.get(key)?.first ?? position, position);
      changed.set(key, { user_id: userId, first, end });
    }
    return {
      /**
       * Call it for each new order, before the insert, and for each one that moves to the user.
       * @returns a preliminary position, which another order can have until `renumber`
       */
      add(userId: number, id: number): number {
        const { id: lastId = null, next = 1 } = last.get(userId) ?? {};
        if (lastId === null || id > lastId) return next;
        const { positionAt, countUpTo } = numberingOf(userId);
        const position = positionAt(Math.max(countUpTo(id), 1));
        changeFrom(userId, position);
        return position;
      },
      /** Call it for each order before it leaves its user. */
      remove(userId: number, id: number): void {
        changeFrom(userId, positionOf.get({ id })?.user_position ?? 1);
      },
      /** Renumbers the blocks of users from the first out-of-sequence order on. Call it after the last order. */
      renumber() {
        for (const range of changed.values()) {
          const { orders = 0 } = countBetween.get({ ...range, first: range.end - BLOCK + 1 }) ?? {};
          if (orders <= BLOCK) updateBlock.run(range);
          else updateAll.run({ ...range, first: 1, end: Number.MAX_SAFE_INTEGER });
        }
      },
    };
  };
}

/** A queue that serves clients round robin. The items of one client keep their order. */
export function createRoundRobinQueue<Item>() {
  /** The first client is the next one. Each has at least one item. */
  const clients = new Map<string | null, Item[]>();
  let size = 0;

  return {
    size: () => size,
    has: (client: string | null) => clients.has(client),
    add(client: string | null, item: Item): void {
      const items = clients.get(client);
      if (items === undefined) clients.set(client, [item]);
      else items.push(item);
      size += 1;
    },
    take(): Item | null {
      const [first] = clients;
      if (first === undefined) return null;
      const [client, items] = first;
      const item = items.shift() ?? null;
      const isEmpty = items.length === 0;
      if (isEmpty || clients.size > 1) clients.delete(client);
      if (!isEmpty) clients.set(client, items);
      size -= 1;
      return item;
    },
  };
}

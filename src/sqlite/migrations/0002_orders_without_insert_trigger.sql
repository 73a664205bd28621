-- With a trigger on insert SQLite journals each insert by itself, at a tenth of what an order costs it. What is
-- placed is pending and counts nowhere; an import counts what it brings in another status (see `ids.ts`).
drop trigger orders_inserted;

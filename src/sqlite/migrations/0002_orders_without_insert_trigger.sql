-- If a table has an insert trigger, SQLite opens a statement journal for each insert and copies every changed page
-- to it (https://www.sqlite.org/tempfiles.html). A new order is pending, so no count changes. Imports and copies
-- update the counts of other statuses themselves (see `id-tracker.ts`).
drop trigger if exists orders_inserted;

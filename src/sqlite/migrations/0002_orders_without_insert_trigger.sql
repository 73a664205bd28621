-- For a table with a trigger on insert SQLite opens a statement journal (https://www.sqlite.org/tempfiles.html)
-- with each insert, and copies into it all pages that it changes. What is placed is pending and counts nowhere;
-- an import and a copy count what they bring in another status (see `ids.ts`).
drop trigger if exists orders_inserted;

-- Each change of a user or an order, in the order of commits. Without AUTOINCREMENT: the next id is that of the newest
-- row + 1, also after a rollback, so ids are consecutive. The newest row is never deleted.
create table changes (
  id integer primary key,
  -- 1 user.created, 2 user.updated, 3 user.deleted, 4 order.created, 5 order.updated
  type integer not null check (type between 1 and 5),
  record_id integer not null check (record_id >= 1),
  -- Of the record after the change.
  version integer not null check (version >= 1),
  -- Of an order after the change: 1 pending, 2 paid, 3 shipped, 4 delivered, 5 canceled.
  status integer check (status between 1 and 5 and type >= 4 or status is null and type <= 3),
  -- Name of the token that made the change; null for the command line. A token can be outside the database.
  token text,
  -- Milliseconds since the Unix epoch: less than a third of the text.
  created_at integer not null
) strict;

-- One row: the sequence of changes.
create table feed (
  -- A new one whenever changes may have been lost or replaced.
  name text not null check (length(name) between 1 and 64),
  -- The file that the last server used. See feed.ts. Null before the first server.
  file text
) strict;

insert into feed (name) values (lower(hex(randomblob(10))));

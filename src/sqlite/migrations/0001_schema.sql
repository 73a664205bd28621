-- Times are RFC 3339 text in UTC with milliseconds, which sorts by time.
-- Text that becomes JSON as it is, without escapes, has a check of its form. JSON itself has none: each write would parse
-- it again, which takes a third of the time of a large order. `check` verifies it.
-- AUTOINCREMENT: the id of a deleted row is never reused.

create table users (
  id integer primary key autoincrement,
  email text not null check (length(email) between 3 and 254),
  -- The same for all spellings of one mailbox (src/base/email.ts).
  email_key text not null unique,
  reference text check (length(reference) between 1 and 255),
  name text check (length(name) between 1 and 200),
  metadata text not null,
  version integer not null check (version >= 1),
  -- The id of its newest change, which may have expired.
  last_change integer,
  created_at text not null check (created_at glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z'),
  updated_at text not null check (updated_at glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z')
) strict;

create table orders (
  id integer primary key autoincrement,
  user_id integer not null references users (id) on delete restrict,
  currency text not null check (currency glob '[A-Z][A-Z][A-Z]'),
  reference text check (length(reference) between 1 and 255),
  total integer not null check (total between 0 and 9007199254740991),
  refunded integer not null default 0 check (refunded between 0 and total),
  -- Not `in (…)`: with more than two values SQLite builds a temporary table for each row, which takes a sixth
  -- of the time of an insert.
  status text not null check (
    status = 'pending' or status = 'paid' or status = 'shipped' or status = 'delivered'
      or status = 'canceled'
  ),
  version integer not null check (version >= 1),
  last_change integer,
  created_at text not null check (created_at glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z'),
  updated_at text not null check (updated_at glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9]Z'),
  -- The long columns are the last ones: what is behind them is read by way of their overflow pages.
  -- Never changed, and always read as a whole: hence a JSON array, not a separate table.
  items text not null,
  metadata text not null
) strict;

-- Most records have no reference.
create unique index users_by_reference on users (reference) where reference is not null;
create unique index orders_by_reference on orders (reference) where reference is not null;

-- Includes the status, so that one user's orders in one status are counted in the index alone. A separate index
-- on (user_id, status) would take a fifth of the time of an insert.
create index orders_by_user on orders (user_id, id, status);
-- As every index, it ends with the id: a page is read from it in order.
create index orders_by_status on orders (status);

-- The number of ids of a list in each bucket of consecutive ids. It gives the page at any offset, and the exact
-- total, without reading all rows. Buckets begin at id 1 and have 64 ids on level 0, 4,096 on level 1, 262,144
-- on level 2, and all ids on level 3.
-- 'users' and 'orders' count the ids that have no record: ids are consecutive, and rows are rarely deleted. The other
-- lists are the orders in one status. 'pending' follows from them, so an insert changes no count.
create table buckets (
  list text not null,
  level integer not null check (level between 0 and 3),
  bucket integer not null check (bucket >= 0),
  ids integer not null check (ids >= 0),
  primary key (list, level, bucket)
) strict, without rowid;

create trigger users_deleted after delete on users begin
  insert into buckets (list, level, bucket, ids)
  values ('users', 0, (old.id - 1) >> 6, 1), ('users', 1, (old.id - 1) >> 12, 1),
    ('users', 2, (old.id - 1) >> 18, 1), ('users', 3, 0, 1)
  on conflict do update set ids = ids + 1;
end;

create trigger orders_deleted before delete on orders begin
  select raise(abort, 'orders are never deleted');
end;

-- No trigger on insert: SQLite would open a statement journal for each insert and copy every changed page to it
-- (https://www.sqlite.org/tempfiles.html). Imports and copies count orders that are not pending themselves (see
-- `bulk-insert.ts`).
create trigger orders_joined_status after update of status on orders
when new.status <> old.status and new.status <> 'pending' begin
  insert into buckets (list, level, bucket, ids)
  values (new.status, 0, (new.id - 1) >> 6, 1), (new.status, 1, (new.id - 1) >> 12, 1),
    (new.status, 2, (new.id - 1) >> 18, 1), (new.status, 3, 0, 1)
  on conflict do update set ids = ids + 1;
end;

create trigger orders_left_status after update of status on orders
when new.status <> old.status and old.status <> 'pending' begin
  update buckets set ids = ids - 1
  where list = old.status
    and (level, bucket) in (values (0, (old.id - 1) >> 6), (1, (old.id - 1) >> 12),
      (2, (old.id - 1) >> 18), (3, 0));
end;

-- Consecutive ids of orders whose times ascend or descend. Each 4,096 ids of which none will be assigned any more are
-- divided into at most four (see `time-runs.ts`). The times of other orders are compared.
create table order_runs (
  first integer primary key check (first >= 1),
  last integer not null check (last >= first),
  -- 1 up, -1 down, 0 neither.
  direction integer not null check (direction between -1 and 1),
  -- Of the orders in it, of which there is at least one.
  earliest text not null,
  latest text not null check (latest >= earliest)
) strict;

create table tokens (
  id integer primary key autoincrement,
  -- SHA-256 of the token. The token itself is not stored.
  hash text not null unique check (length(hash) = 64),
  name text not null check (length(name) between 1 and 100),
  scope text not null check (length(scope) >= 4),
  created_at text not null,
  expires_at text,
  last_used_at text,
  revoked_at text
) strict;

create unique index tokens_by_valid_name on tokens (name) where revoked_at is null;

create table idempotency_keys (
  -- Ascends with time, so that the oldest keys are found without another index.
  id integer primary key,
  -- Hash of the token that the key belongs to.
  owner text not null,
  key text not null check (length(key) between 1 and 255),
  fingerprint text not null,
  -- The record as returned by the first response, and the user that it is; null for an order.
  record text not null,
  user_id integer,
  created_at text not null,
  unique (owner, key)
) strict;

create index idempotency_keys_by_user on idempotency_keys (user_id) where user_id is not null;

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
  created_at integer not null,
  -- Of an update: which fields it changed. 1 email, 2 name, 4 reference, 8 metadata, 16 status, 32 refunded, 64 user_id.
  fields integer check (fields between 1 and 127),
  -- The change before it of the same record. An index of all changes by record would write one more page in each update,
  -- which takes a fifth of its time.
  previous integer
) strict;

-- Of a long history, every 64th update, from which walks by `previous` begin (see `history.ts`); and deletions, because a
-- user who is deleted has no `last_change`.
create index changes_by_record on changes (type, record_id, version) where version % 64 = 0 or type = 3;

-- One row: the sequence of changes.
create table feed (
  -- A new one whenever changes may have been lost or replaced.
  name text not null check (length(name) between 1 and 64),
  -- The file that the last server used. See feed.ts. Null before the first server.
  file text
) strict;

insert into feed (name) values (lower(hex(randomblob(10))));

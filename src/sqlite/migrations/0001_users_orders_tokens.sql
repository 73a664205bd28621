-- Times are RFC 3339 text in UTC with milliseconds: it sorts as time does.
-- AUTOINCREMENT, so that the id of a deleted row is never given to another.

create table users (
  id integer primary key autoincrement,
  email text not null check (length(email) between 3 and 254),
  -- The email in lower case (full Unicode, so not SQLite's own lower()): what makes it unique.
  email_key text not null unique,
  name text check (length(name) between 1 and 200),
  metadata text not null check (json_type(metadata) = 'object'),
  version integer not null check (version >= 1),
  created_at text not null,
  updated_at text not null
) strict;

create table orders (
  id integer primary key autoincrement,
  user_id integer not null references users (id) on delete restrict,
  -- 1, 2, 3 … among the orders of the user. An order never leaves that list, so its place is for ever.
  user_position integer not null check (user_position >= 1),
  currency text not null check (length(currency) = 3),
  -- Never changed, and always read whole: so a JSON array, not a table of its own.
  items text not null check (json_type(items) = 'array'),
  total integer not null check (total between 0 and 9007199254740991),
  -- Not a list of them: of more than two SQLite makes a table for each row, at a sixth of what an order costs it.
  status text not null check (
    status = 'pending' or status = 'paid' or status = 'shipped' or status = 'delivered'
      or status = 'canceled'
  ),
  metadata text not null check (json_type(metadata) = 'object'),
  version integer not null check (version >= 1),
  created_at text not null,
  updated_at text not null
) strict;

-- With the status, so that one user's orders in one status are counted without a look at the rows. Not
-- an index more on (user_id, status): that is a fifth of what an order costs.
create index orders_by_user on orders (user_id, user_position, status);
-- Ends in the id, as every index does: so a page comes out of it in order.
create index orders_by_status on orders (status);

-- Orders that were imported without an id: which record of which import each was.
create table imported_orders (
  import_key text primary key check (length(import_key) between 1 and 255),
  order_id integer not null references orders (id)
) strict, without rowid;

-- How many ids of a list lie in each bucket of consecutive ids: what finds a page at any offset, and
-- the exact total, without walking the rows. Buckets begin at id 1 and hold 64 ids on level 0, 4,096
-- on level 1, 262,144 on level 2 and all on level 3.
-- 'users', 'orders' and 'pending' count the ids that are missing from them: rows come in order and seldom
-- go, and an order is placed as a pending one, so that neither costs anything here. The other statuses count
-- the orders that are in them: they come and go all the time.
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

-- Only an import brings an order that is not pending.
create trigger orders_inserted after insert on orders
when new.status <> 'pending' begin
  insert into buckets (list, level, bucket, ids)
  values (new.status, 0, (new.id - 1) >> 6, 1), (new.status, 1, (new.id - 1) >> 12, 1),
    (new.status, 2, (new.id - 1) >> 18, 1), (new.status, 3, 0, 1)
  on conflict do update set ids = ids + 1;
  insert into buckets (list, level, bucket, ids)
  values ('pending', 0, (new.id - 1) >> 6, 1), ('pending', 1, (new.id - 1) >> 12, 1),
    ('pending', 2, (new.id - 1) >> 18, 1), ('pending', 3, 0, 1)
  on conflict do update set ids = ids + 1;
end;

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

-- The other way round: an order that is not pending is missing from those that are.
create trigger orders_left_pending after update of status on orders
when old.status = 'pending' and new.status <> 'pending' begin
  insert into buckets (list, level, bucket, ids)
  values ('pending', 0, (new.id - 1) >> 6, 1), ('pending', 1, (new.id - 1) >> 12, 1),
    ('pending', 2, (new.id - 1) >> 18, 1), ('pending', 3, 0, 1)
  on conflict do update set ids = ids + 1;
end;

create trigger orders_joined_pending after update of status on orders
when new.status = 'pending' and old.status <> 'pending' begin
  update buckets set ids = ids - 1
  where list = 'pending'
    and (level, bucket) in (values (0, (old.id - 1) >> 6), (1, (old.id - 1) >> 12),
      (2, (old.id - 1) >> 18), (3, 0));
end;

create table tokens (
  id integer primary key autoincrement,
  -- SHA-256 of the token: the token itself is nowhere.
  hash text not null unique check (length(hash) = 64),
  name text not null check (length(name) between 1 and 100),
  scope text not null check (scope in ('read', 'write')),
  created_at text not null,
  expires_at text,
  last_used_at text,
  revoked_at text
) strict;

create unique index tokens_by_valid_name on tokens (name) where revoked_at is null;

create table idempotency_keys (
  -- In the order of time, so that the oldest are found without an index more.
  id integer primary key,
  -- Hash of the token that the key belongs to.
  owner text not null,
  key text not null check (length(key) between 1 and 255),
  fingerprint text not null,
  -- The record of the first answer, as it was then.
  record text not null check (json_type(record) = 'object'),
  created_at text not null,
  unique (owner, key)
) strict;

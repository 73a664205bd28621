-- The layout for one server. Times are RFC 3339 text in UTC with milliseconds, as in responses, which sorts by time.
-- Indexed text sorts by bytes (collation "C"): with another collation, an update of the C library can change the order
-- and so corrupt the index. Text that becomes JSON as it is, without escapes, has a check of its form. Every table has a
-- primary key: without one, PostgreSQL refuses updates and deletes as soon as somebody publishes all tables.

-- One row. It identifies a database of user-api.
create table user_api (
  -- Random, because a restore of the data alone adds a second row.
  id text collate "C" primary key default md5(random()::text || clock_timestamp()::text),
  schema_version integer not null,
  layout text not null check (layout in ('plain', 'citus')),
  -- Written by the health check.
  probed_at text not null
);

create table users (
  id bigserial primary key,
  email text not null check (length(email) between 3 and 254),
  -- The same for all spellings of one mailbox (src/email.ts).
  email_key text collate "C" not null unique,
  name text check (length(name) between 1 and 200),
  -- Text, because jsonb does not keep the order of members.
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null check (created_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$'),
  updated_at text not null check (updated_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
);

create table orders (
  id bigserial primary key,
  user_id bigint not null references users (id),
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  -- Never changed, and always read as a whole: hence a JSON array, not a separate table.
  items text not null check (json_typeof(items::json) = 'array'),
  total bigint not null check (total between 0 and 9007199254740991),
  status text collate "C" not null
    check (status in ('pending', 'paid', 'shipped', 'delivered', 'canceled')),
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null check (created_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$'),
  updated_at text not null check (updated_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
);

-- The API shows larger ids inexactly. Not in the Citus layout: Citus manages the sequences of its tables itself.
alter sequence users_id_seq maxvalue 9007199254740991;
alter sequence orders_id_seq maxvalue 9007199254740991;

-- One index for each status, because an order is in exactly one. With the status as a column, PostgreSQL may prefer the
-- primary key, and then reads all orders of other statuses before the first match.
create index orders_pending on orders (id) where status = 'pending';
create index orders_paid on orders (id) where status = 'paid';
create index orders_shipped on orders (id) where status = 'shipped';
create index orders_delivered on orders (id) where status = 'delivered';
create index orders_canceled on orders (id) where status = 'canceled';

-- The status is a key: of an included column, a page would read the row of each order of its user to compare it.
create index orders_of_user on orders (user_id, id, status);

-- Orders that were imported without an id. The key names the import and the line.
create table imported_orders (
  import_key text collate "C" primary key check (length(import_key) between 1 and 255),
  order_id bigint not null references orders (id)
);

create table tokens (
  id bigserial primary key,
  -- SHA-256 of the token. The token itself is not stored.
  hash text collate "C" not null unique check (length(hash) = 64),
  name text collate "C" not null check (length(name) between 1 and 100),
  scope text not null check (scope in ('read', 'write')),
  created_at text not null,
  expires_at text,
  last_used_at text collate "C",
  revoked_at text
);

create unique index tokens_by_valid_name on tokens (name) where revoked_at is null;

create table idempotency_keys (
  -- Hash of the token that the key belongs to.
  owner text collate "C" not null,
  key text collate "C" not null check (length(key) between 1 and 255),
  fingerprint text not null,
  -- The record as returned by the first response.
  record text not null check (json_typeof(record::json) = 'object'),
  created_at text collate "C" not null,
  primary key (key, owner)
);

create index idempotency_keys_by_time on idempotency_keys (created_at);

-- The number of users, and of orders in each status: the sums of these columns. Triggers insert a row for each statement
-- that changes a number, in its transaction, and from time to time the program replaces the rows by one with their sum
-- (src/postgres/counts.ts). No row is updated: while any snapshot is open, PostgreSQL keeps all old versions of a row,
-- and every update and read of the row would pass them.
create table counts (
  -- The transaction that inserted the row.
  xid bigint not null default txid_current(),
  users bigint not null default 0,
  pending bigint not null default 0,
  paid bigint not null default 0,
  shipped bigint not null default 0,
  delivered bigint not null default 0,
  canceled bigint not null default 0,
  -- Only in a sum. It replaces the rows of all transactions before `next_xid` except those in `running`.
  next_xid bigint,
  running bigint[],
  -- A transaction can insert several rows.
  id bigserial,
  primary key (xid, id),
  check ((next_xid is null) = (running is null))
);

create index sums_of_counts on counts (xid) where next_xid is not null;

insert into counts (next_xid, running)
values (0, '{}');

-- While the data of a dump are restored into existing tables, the triggers count the rows. So the counts of the dump
-- must not be added: they name transactions of another time. If the dump creates the tables, or its triggers are
-- disabled, it is the other way round.
create function skip_row() returns trigger language plpgsql as $$
begin
  return null;
end
$$;

create trigger counts_restored before insert on counts
  for each row when (new.xid <> txid_current()) execute function skip_row();

-- The triggers run once per statement: once per row took 160 times as long. A restore sets an empty search path, so the
-- functions name the schema. To set the path in each function would take longer in every write.
do $migration$
begin
  execute format($create$
    create function count_new_users() returns trigger language plpgsql as $$
    begin
      insert into %I.counts (users)
      select count(*)
      from new_rows
      having count(*) > 0;
      return null;
    end
    $$
  $create$, current_schema());

  execute format($create$
    create function count_gone_users() returns trigger language plpgsql as $$
    begin
      insert into %I.counts (users)
      select -count(*)
      from old_rows
      having count(*) > 0;
      return null;
    end
    $$
  $create$, current_schema());

  execute format($create$
    create function count_new_orders() returns trigger language plpgsql as $$
    begin
      insert into %I.counts (pending, paid, shipped, delivered, canceled)
      select
        count(*) filter (where status = 'pending'),
        count(*) filter (where status = 'paid'),
        count(*) filter (where status = 'shipped'),
        count(*) filter (where status = 'delivered'),
        count(*) filter (where status = 'canceled')
      from new_rows
      having count(*) > 0;
      return null;
    end
    $$
  $create$, current_schema());

  execute format($create$
    create function count_changed_orders() returns trigger language plpgsql as $$
    begin
      insert into %I.counts (pending, paid, shipped, delivered, canceled)
      select pending, paid, shipped, delivered, canceled
      from (
        select
          coalesce(sum(change) filter (where status = 'pending'), 0) as pending,
          coalesce(sum(change) filter (where status = 'paid'), 0) as paid,
          coalesce(sum(change) filter (where status = 'shipped'), 0) as shipped,
          coalesce(sum(change) filter (where status = 'delivered'), 0) as delivered,
          coalesce(sum(change) filter (where status = 'canceled'), 0) as canceled
        from (
          select status, 1 as change from new_rows
          union all
          select status, -1 from old_rows
        ) as changes
      ) as totals
      where (pending, paid, shipped, delivered, canceled) <> (0, 0, 0, 0, 0);
      return null;
    end
    $$
  $create$, current_schema());
end
$migration$;

create function refuse_to_delete_orders() returns trigger language plpgsql as $$
begin
  raise exception 'orders are never deleted';
end
$$;

create trigger users_inserted after insert on users
  referencing new table as new_rows for each statement execute function count_new_users();
create trigger users_deleted after delete on users
  referencing old table as old_rows for each statement execute function count_gone_users();
create trigger orders_inserted after insert on orders
  referencing new table as new_rows for each statement execute function count_new_orders();
create trigger orders_changed after update on orders
  referencing old table as old_rows new table as new_rows
  for each statement execute function count_changed_orders();
create trigger orders_deleted before delete on orders
  for each statement execute function refuse_to_delete_orders();

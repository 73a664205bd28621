-- The tables, as they are on one server. src/postgres/server/citus.ts distributes them over several. Each statement
-- ends with a semicolon and an empty line, and runs alone, for Citus. Times are RFC 3339 text in UTC with milliseconds,
-- which sorts by time. Indexed text sorts by bytes (collation "C"): with another one, an update of the C library can
-- corrupt the index. Every table has a primary key: without one, PostgreSQL refuses updates as soon as somebody
-- publishes all tables. JSON is text: jsonb does not keep the order of members, and text is not parsed in each update.

-- One row. It identifies a database of user-api.
create table user_api (
  -- Random, because a restore of the data alone adds a second row.
  id text collate "C" primary key default pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''),
  schema_version integer not null,
  -- Programs whose newest migration is older than this must not use the schema.
  oldest_version integer not null,
  -- Written by the health check.
  probed_at text not null default ''
);

insert into user_api (schema_version, oldest_version) values (0, 0);

-- The API shows larger ids inexactly.
create sequence users_id_seq maxvalue 9007199254740991;

create sequence orders_id_seq maxvalue 9007199254740991;

create table users (
  id bigint primary key,
  email text not null check (pg_catalog.length(email) between 3 and 254),
  -- The same for all spellings of one mailbox (src/base/email.ts).
  email_key text collate "C" not null unique,
  reference text collate "C" check (pg_catalog.length(reference) between 1 and 255),
  name text check (pg_catalog.length(name) between 1 and 200),
  metadata text not null,
  version bigint not null check (version >= 1),
  created_at text not null check (created_at like '____-__-__T__:__:__.___Z'),
  updated_at text not null check (updated_at like '____-__-__T__:__:__.___Z')
) with (fillfactor = 90);

create table orders (
  id bigint primary key,
  user_id bigint not null references users (id),
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  reference text collate "C" check (pg_catalog.length(reference) between 1 and 255),
  total bigint not null check (total between 0 and 9007199254740991),
  refunded bigint not null default 0 check (refunded between 0 and total),
  status text collate "C" not null
    check (status in ('pending', 'paid', 'shipped', 'delivered', 'canceled')),
  version bigint not null check (version >= 1),
  created_at text collate "C" not null check (created_at like '____-__-__T__:__:__.___Z'),
  updated_at text not null check (updated_at like '____-__-__T__:__:__.___Z'),
  -- Never changed, and always read as a whole: hence a JSON array, not a separate table.
  items text not null,
  metadata text not null
) with (fillfactor = 90);

-- Most records have no reference.
create unique index users_reference on users (reference) where reference is not null;

create unique index orders_reference on orders (reference) where reference is not null;

-- One index for each status, because an order is in exactly one. With the status as a column, PostgreSQL may prefer the
-- primary key, and then reads all orders of other statuses before the first match.
create index orders_pending on orders (id) where status = 'pending';

create index orders_paid on orders (id) where status = 'paid';

create index orders_shipped on orders (id) where status = 'shipped';

create index orders_delivered on orders (id) where status = 'delivered';

create index orders_canceled on orders (id) where status = 'canceled';

-- The status is a key: of an included column, a page would read the row of each order of its user to compare it.
create index orders_of_user on orders (user_id, id, status);

-- Has what a list of a time compares and sorts by, so that it reads the rows of its page only.
create index orders_created on orders (created_at, id, status);

create table tokens (
  id bigserial primary key,
  -- SHA-256 of the token.
  hash text collate "C" not null unique check (pg_catalog.length(hash) = 64),
  name text collate "C" not null check (pg_catalog.length(name) between 1 and 100),
  scope text collate "C" not null,
  created_at text not null,
  expires_at text,
  last_used_at text collate "C",
  revoked_at text
);

create unique index tokens_by_valid_name on tokens (name) where revoked_at is null;

create table idempotency_keys (
  -- Hash of the token that the key belongs to.
  owner text collate "C" not null,
  key text collate "C" not null check (pg_catalog.length(key) between 1 and 255),
  fingerprint text not null,
  -- The record as returned by the first response, and the user that it is; null for an order.
  record text not null,
  user_id bigint,
  created_at text collate "C" not null,
  primary key (key, owner)
) with (vacuum_truncate = off);

create index idempotency_keys_by_time on idempotency_keys (created_at);

create index idempotency_keys_of_user on idempotency_keys (user_id) where user_id is not null;

-- Writes insert their changes here, without a lock. Each second or more often, `number_changes` moves the rows into
-- `changes`, with ids: hence the settings of autovacuum. With a sequence, a client would skip what commits late.
create table change_outbox (
  xid bigint not null default pg_catalog.txid_current(),
  -- Positions in `changeTypes` and `orderStatuses` of the program, from 1.
  type smallint not null check (type between 1 and 5),
  record_id bigint not null,
  version bigint not null check (version >= 1),
  status smallint check (status between 1 and 5),
  -- Of the order before the change, for the totals of lists.
  status_before smallint check (status_before between 1 and 5),
  -- The name of the token, and milliseconds since the Unix epoch.
  token text,
  created_at bigint not null,
  -- Of an update: which fields it changed, as bits in the order of `writtenFields` of the program.
  fields smallint check (fields between 1 and 127),
  primary key (xid, type, record_id, version)
) with (
  vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000
);

-- Ids are consecutive. The oldest changes are deleted, but never the newest one.
create table changes (
  id bigint primary key check (id between 1 and 9007199254740991),
  type smallint not null check (type between 1 and 5),
  record_id bigint not null,
  version bigint not null check (version >= 1),
  status smallint check (status between 1 and 5),
  token text,
  created_at bigint not null,
  fields smallint check (fields between 1 and 127)
);

-- Users and orders have the same ids. A boolean is of no use: PostgreSQL turns `(type > 3) = false` into `type <= 3`.
create index changes_by_record on changes (((type > 3)::integer), record_id);

-- One row: the state of the feed. It is not updated, but replaced, and found by the last `xid`: while any snapshot is
-- open, PostgreSQL keeps all old versions of a row, and every update and read of the row would pass them.
create table change_feed (
  -- The transaction that inserted the row. If another one did, the row was restored from a dump.
  xid bigint not null default pg_catalog.txid_current(),
  name text collate "C" not null,
  first bigint not null,
  last bigint not null,
  -- The transaction that inserted the last change; 0 if there is none.
  last_xid bigint not null,
  -- Identifies the server and the database. @see feed_origin
  origin bigint[] not null,
  -- Rows of the outbox are of this transaction, of a later one, or of one of those that were open before it. With the
  -- oldest open one as the only bound, all rows that were deleted since it began would be passed.
  next_xid bigint not null,
  open_xids bigint[] not null default '{}',
  -- The number of users, and of orders in each status, in the order of `orderStatuses`, after the last change.
  totals bigint[] not null,
  -- With the name, because a restore of the data alone adds a row of another feed.
  primary key (xid, name)
);

-- Never has rows. Unlike an advisory lock, a lock of the table needs a right.
create table feed_lock (id integer primary key);

-- The system identifier of the server, its timeline, and the database. A part is null if the server does not offer the
-- function, or does not permit it. The timeline of `pg_control_checkpoint` would be late after a failover.
create function feed_origin() returns bigint[] language plpgsql as $$
declare
  system bigint;
  timeline bigint;
begin
  begin
    select system_identifier into system
    from pg_catalog.pg_control_system();
  exception when others then
  end;
  begin
    timeline := ('x' || pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()))::bit(32)::bigint;
  exception when others then
  end;
  return array[system, timeline, (
    select oid::bigint from pg_catalog.pg_database where datname = pg_catalog.current_database()
  )];
end
$$;

-- `is_whole` is false if the state, or the last change, was restored from a dump. `is_current` is false also if another
-- server, timeline or database has stored it. `xmin` has only the lower 32 bits of the number of a transaction.
create view feed_state as
select state.*, newest.last_id, is_whole, is_whole and not exists (
  select
  from unnest(origin, feed_origin()) as part (stored, present)
  where stored <> present
) as is_current
from (
  select *, xmin::text::bigint as inserted_by
  from change_feed
  order by xid desc
  limit 1
) as state
cross join lateral (
  select coalesce(pg_catalog.max(id), 0) as last_id, coalesce(pg_catalog.max(inserted_by), 0) as inserted_by
  from (
    select id, xmin::text::bigint as inserted_by
    from changes
    order by id desc
    limit 1
  ) as change
) as newest
cross join lateral (
  select
    state.inserted_by = xid % 4294967296
      and last = last_id
      and last_xid % 4294967296 = newest.inserted_by as is_whole
) as found;

-- Moves changes from the outbox into `changes`, at most `max_rows` unless a new feed begins. It must be the only
-- statement of its transaction, so that it sees what was committed before the lock was granted: no id can be overtaken.
-- The transaction of a change has a higher number than that of every change that it could know of, also of one record:
-- PostgreSQL assigns the number before a statement waits for a row, but a write that has waited finds another version,
-- and is repeated in another transaction. If the feed is not current, all rows are moved, those that were restored
-- first: the numbers of their transactions mean nothing here.
create function number_changes(max_rows integer) returns bigint language plpgsql as $$
declare
  state record;
  counted bigint[];
  moved_rows bigint;
begin
  -- The commit is on disk before others see it: otherwise a client could read ids that a crash assigns again.
  if pg_catalog.current_setting('synchronous_commit') = 'off' then
    perform pg_catalog.set_config('synchronous_commit', 'local', true);
  end if;
  -- As long as the statement may take. The mode conflicts with itself: one call runs at a time.
  perform pg_catalog.set_config('lock_timeout', '0', true);
  lock table feed_lock in share update exclusive mode;
  select * into strict state from feed_state;
  if not state.is_whole then
    -- The last part of a dump. Records that are still to be restored would not be counted.
    if not exists (select from pg_catalog.pg_constraint where conrelid = 'orders'::regclass::oid and contype = 'f') then
      raise exception 'the database is being restored' using errcode = '57U01';
    end if;
    perform pg_catalog.set_config('lock_timeout', '10s', true);
    lock table users, orders in share mode;
    counted := array[
      (select pg_catalog.count(*) from users),
      (select pg_catalog.count(*) from orders where status = 'pending'),
      (select pg_catalog.count(*) from orders where status = 'paid'),
      (select pg_catalog.count(*) from orders where status = 'shipped'),
      (select pg_catalog.count(*) from orders where status = 'delivered'),
      (select pg_catalog.count(*) from orders where status = 'canceled')
    ];
  end if;
  with
    moved as (
      delete from change_outbox
      where ctid = any(array(
        select ctid
        from (
          select ctid, xid, type, record_id, version
          from change_outbox
          -- The bounds exclude nothing: see `whenUnnumbered` in src/postgres/tables/outbox.ts.
          where xid = any(state.open_xids) and xid between 0 and state.next_xid - 1 and state.is_current
          union all (
            select ctid, xid, type, record_id, version
            from change_outbox
            where xid between case when state.is_current then state.next_xid else 0 end and 9223372036854775807
            order by xid, type, record_id, version
            limit case when state.is_current then max_rows end
          )
        ) as unnumbered
        order by xid, type, record_id, version
        limit case when state.is_current then max_rows end
      ))
      returning *, xmin::text::bigint <> xid % 4294967296 as is_restored
    ),
    numbered as (
      insert into changes (id, type, record_id, version, status, token, created_at, fields)
      select
        state.last_id + pg_catalog.row_number() over (
          order by not state.is_current and is_restored desc, xid, type, record_id, version
        ),
        type, record_id, version, status, token, created_at, fields
      from moved
    ),
    total as (
      select
        pg_catalog.count(*) as rows,
        pg_catalog.max(xid) as last_moved,
        array[
          coalesce(pg_catalog.sum((type = 1)::integer - (type = 3)::integer), 0),
          coalesce(pg_catalog.sum((status = 1)::integer - coalesce((status_before = 1)::integer, 0)), 0),
          coalesce(pg_catalog.sum((status = 2)::integer - coalesce((status_before = 2)::integer, 0)), 0),
          coalesce(pg_catalog.sum((status = 3)::integer - coalesce((status_before = 3)::integer, 0)), 0),
          coalesce(pg_catalog.sum((status = 4)::integer - coalesce((status_before = 4)::integer, 0)), 0),
          coalesce(pg_catalog.sum((status = 5)::integer - coalesce((status_before = 5)::integer, 0)), 0)
        ] as added
      from moved
    ),
    replaced as (
      -- With a bound, so that it reads no older versions of the row, unless others were restored.
      delete from change_feed
      where (exists (select from moved) or not state.is_current)
        and xid between case when state.is_current then state.xid else 0 end and 9223372036854775807
    )
  insert into change_feed (name, first, last, last_xid, origin, next_xid, open_xids, totals)
  select
    case when state.is_current then state.name else pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', '') end,
    case when state.is_current then state.first else coalesce((select pg_catalog.min(id) from changes), 1) end,
    state.last_id + rows,
    case
      when rows > 0 then pg_catalog.txid_current()
      else coalesce((select xmin::text::bigint from changes where id = state.last_id), 0)
    end,
    array(
      select coalesce(present, stored)
      from unnest(state.origin, feed_origin()) with ordinality as part (stored, present, at)
      order by at
    ),
    least(
      pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()),
      case when state.is_current and rows = max_rows then last_moved end
    ),
    array(select pg_catalog.txid_snapshot_xip(pg_catalog.txid_current_snapshot())),
    coalesce(counted, array(
      select old + new
      from unnest(state.totals, added) with ordinality as part (old, new, at)
      order by at
    ))
  from total
  where rows > 0 or not state.is_current
  returning last - state.last_id into moved_rows;
  return coalesce(moved_rows, 0);
end
$$;

insert into change_feed (name, first, last, last_xid, origin, next_xid, totals)
values (pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''), 1, 0, 0, feed_origin(), 0, '{0,0,0,0,0,0}');

-- The change feed, in both layouts. Each write inserts its change into `change_outbox`, in its own transaction and without
-- a lock. Now and then, the program moves the rows into `changes` and numbers them (src/postgres/numbering.ts). A sequence
-- could not give the ids: a transaction that takes its id early and commits late would be skipped by a client that has
-- read further. Each statement ends with a semicolon and an empty line.

-- Changes that have no id yet. Its rows are never updated.
create table change_outbox (
  -- The transaction that inserted the row.
  xid bigint not null default txid_current(),
  -- Positions in `changeTypes` and `orderStatuses` of the program, from 1.
  type smallint not null check (type between 1 and 5),
  record_id bigint not null,
  version bigint not null check (version >= 1),
  status smallint check (status between 1 and 5),
  -- Name of the token that made the change.
  token text,
  -- Milliseconds since the Unix epoch.
  created_at bigint not null,
  primary key (xid, type, record_id, version)
);

-- Ids are consecutive. The oldest changes are deleted, but never the newest one.
create table changes (
  id bigint primary key check (id between 1 and 9007199254740991),
  type smallint not null check (type between 1 and 5),
  record_id bigint not null,
  version bigint not null check (version >= 1),
  status smallint check (status between 1 and 5),
  token text,
  created_at bigint not null
);

-- One row: the state of the feed. It is not updated, but replaced, and found by the last `xid`: while any snapshot is
-- open, PostgreSQL keeps all old versions of a row, and every update and read of the row would pass them.
create table change_feed (
  -- The transaction that inserted the row. If another one did, the row was restored from a dump.
  xid bigint not null default txid_current(),
  name text collate "C" not null,
  first bigint not null,
  last bigint not null,
  -- The transaction that inserted the last change.
  last_xid bigint not null,
  -- Identifies the server and the database. @see feed_origin
  origin bigint[] not null,
  -- No row of the outbox is of a transaction before `next_xid` that is not in `running`.
  next_xid bigint not null,
  running bigint[] not null,
  -- With the name, because a restore of the data alone adds a row of another feed.
  primary key (xid, name)
);

-- The system identifier of the server, its timeline, and the database: another server, a failover, a restore to a point in
-- time and a copy of the database change one of them. A part is null if the server does not offer the function, or does
-- not permit it. The timeline of `pg_control_checkpoint` would be late after a failover.
create function feed_origin() returns bigint[] language plpgsql as $$
declare
  system bigint;
  timeline bigint;
begin
  begin
    select system_identifier into system
    from pg_control_system();
  exception when others then
  end;
  begin
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
  exception when others then
  end;
  return array[system, timeline, (select oid::bigint from pg_database where datname = current_database())];
end
$$;

insert into change_feed (name, first, last, last_xid, origin, next_xid, running)
values (md5(random()::text || clock_timestamp()::text), 1, 0, 0, feed_origin(), 0, '{}');

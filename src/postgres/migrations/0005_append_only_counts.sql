-- First, so that no transaction adds to the old counts after they are read. Statements that wait for the lock run the
-- new functions.
lock table users, orders in share row exclusive mode;

alter table counts rename to old_counts;

-- The number of users, and of orders in each status: the sums of these columns. A statement that changes a number
-- inserts a row, and from time to time the program replaces the rows by one with their sum (src/postgres/counts.ts).
-- No row is updated: while any snapshot is open, PostgreSQL keeps all old versions of a row, and every update and read
-- of the row would pass them.
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
  check ((next_xid is null) = (running is null))
);

insert into counts (users, pending, paid, shipped, delivered, canceled, next_xid, running)
select
  coalesce(sum(records) filter (where list = 'users'), 0),
  coalesce(sum(records) filter (where list = 'pending'), 0),
  coalesce(sum(records) filter (where list = 'paid'), 0),
  coalesce(sum(records) filter (where list = 'shipped'), 0),
  coalesce(sum(records) filter (where list = 'delivered'), 0),
  coalesce(sum(records) filter (where list = 'canceled'), 0),
  0, '{}'
from old_counts;

drop table old_counts;
drop function add_to_count;

create index counts_by_xid on counts (xid);
create index sums_of_counts on counts (xid) where next_xid is not null;

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

-- A restore sets an empty search path, so the functions name the schema. To set the path in each function would take
-- longer in every write.
do $migration$
begin
  execute format($create$
    create or replace function count_new_users() returns trigger language plpgsql as $$
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
    create or replace function count_gone_users() returns trigger language plpgsql as $$
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
    create or replace function count_new_orders() returns trigger language plpgsql as $$
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
    create or replace function count_changed_orders() returns trigger language plpgsql as $$
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

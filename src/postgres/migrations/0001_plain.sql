-- The layout for one server. Triggers count the totals in the same transaction as the rows.

-- The API shows larger ids inexactly. Not in the Citus layout: Citus manages the sequences of its tables itself.
alter sequence users_id_seq maxvalue 9007199254740991;
alter sequence orders_id_seq maxvalue 9007199254740991;

alter table orders add primary key (id);
alter table orders add foreign key (user_id) references users (id);
alter table imported_orders add foreign key (order_id) references orders (id);

-- Includes the status, so that one user's orders in one status are counted in the index alone.
create index orders_by_user on orders (user_id, id) include (status);

-- The number of users, and of orders in each status, divided into 16 slots. Each connection updates one slot: with
-- a single row, every transaction would wait for the commit of the previous one. Only the sum has a meaning; a
-- slot can be negative.
create table counts (
  list text collate "C" not null,
  slot integer not null check (slot between 0 and 15),
  records bigint not null,
  primary key (list, slot)
) with (fillfactor = 20);

insert into counts (list, slot, records)
select list, slot, 0
from unnest(array['users', 'pending', 'paid', 'shipped', 'delivered', 'canceled']) as list,
  generate_series(0, 15) as slot;

create function add_to_count(changed_list text, change bigint) returns void language sql as $$
  update counts
  set records = records + change
  where list = changed_list and slot = pg_backend_pid() % 16
$$;

-- Once per statement: once per row took 160 times as long.
create function count_new_users() returns trigger language plpgsql as $$
begin
  perform add_to_count('users', count(*)) from new_rows;
  return null;
end
$$;

create function count_gone_users() returns trigger language plpgsql as $$
begin
  perform add_to_count('users', -count(*)) from old_rows;
  return null;
end
$$;

-- Statuses in alphabetical order, so that transactions cannot deadlock.
create function count_new_orders() returns trigger language plpgsql as $$
declare
  changed record;
begin
  for changed in select status, count(*) as change from new_rows group by status order by status loop
    perform add_to_count(changed.status, changed.change);
  end loop;
  return null;
end
$$;

create function count_changed_orders() returns trigger language plpgsql as $$
declare
  changed record;
begin
  for changed in
    select status, sum(change)::bigint as change
    from (
      select status, 1 as change from new_rows
      union all
      select status, -1 from old_rows
    ) as changes
    group by status
    having sum(change) <> 0
    order by status
  loop
    perform add_to_count(changed.status, changed.change);
  end loop;
  return null;
end
$$;

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

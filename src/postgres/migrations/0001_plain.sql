-- One server: totals are counted by triggers, in the transaction of the rows.

-- No id is larger than what the API shows exactly. Citus manages the sequences of its tables itself.
alter sequence users_id_seq maxvalue 9007199254740991;
alter sequence orders_id_seq maxvalue 9007199254740991;

alter table orders add primary key (id);
alter table orders add foreign key (user_id) references users (id);
alter table imported_orders add foreign key (order_id) references orders (id);

-- With the status, so that one user's orders in one status are counted in the index alone.
create index orders_by_user on orders (user_id, id) include (status);

-- How many rows a list has: 'users', and the orders in each status. In 16 slots, of which a connection
-- writes one: a row that all wrote would make each wait for the commit of the one before. Only the sum
-- means anything; a slot may be below 0.
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

-- Once a statement, however many rows it has: row by row took 160 times as long.
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

-- In the order of their names, so that no two transactions wait for each other.
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

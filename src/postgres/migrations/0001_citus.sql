-- The layout for Citus. Orders are distributed by user, and users and tokens are reference tables, so everything
-- that an order refers to is on the same node. Citus supports neither triggers on distributed tables nor unique
-- constraints without the distribution column. `user_api` remains a local table of the coordinator.

-- Otherwise Citus rejects a foreign key to a table that was created in the same transaction.
set local citus.multi_shard_modify_mode to 'sequential';

-- The id alone is unique, too, because one sequence assigns it. Here no constraint can guarantee that.
alter table orders add primary key (user_id, id);
create index orders_by_id on orders (id);

select create_reference_table('users');
select create_reference_table('tokens');
select create_distributed_table('orders', 'user_id');
select create_distributed_table('imported_orders', 'import_key', colocate_with => 'none');
-- By key rather than owner, because one client can have most of the keys.
select create_distributed_table('idempotency_keys', 'key', colocate_with => 'none');

-- After the tables are distributed: before that, it would be a constraint of a local table.
alter table orders add constraint orders_user_id_fkey foreign key (user_id) references users (id);

-- Several servers: orders lie with those of the same user, users and tokens on every server, so that
-- whatever an order needs is beside it. No triggers, and nothing unique without the column that
-- distributes: Citus takes neither. `user_api` stays where it is, on the coordinator.

-- Otherwise a foreign key to a table that was made in the same transaction is refused.
set local citus.multi_shard_modify_mode to 'sequential';

-- The id alone is unique as well, since one sequence gives it; but no index can promise that here.
alter table orders add primary key (user_id, id);
create index orders_by_id on orders (id);

select create_reference_table('users');
select create_reference_table('tokens');
select create_distributed_table('orders', 'user_id');
select create_distributed_table('imported_orders', 'import_key', colocate_with => 'none');
-- By the key, not its owner: one client may have most of them.
select create_distributed_table('idempotency_keys', 'key', colocate_with => 'none');

-- Last, and by name: before, it would be of a table that lies on the coordinator alone.
alter table orders add constraint orders_user_id_fkey foreign key (user_id) references users (id);

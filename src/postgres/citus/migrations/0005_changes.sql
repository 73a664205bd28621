-- Changes of orders that are not in `change_outbox` yet, which is on the coordinator: on the shard of the order, so that
-- a write of an order is on one server. Each statement ends with a semicolon at the end of a line.
create table order_outbox (
  bucket integer not null,
  type smallint not null,
  record_id bigint not null,
  version bigint not null,
  status smallint,
  token text,
  created_at bigint not null
);

select create_distributed_table('order_outbox', 'bucket', colocate_with => 'orders');

-- Citus moves only tables with a replica identity. By default that is the primary key, which this table does not have.
alter table order_outbox replica identity full;

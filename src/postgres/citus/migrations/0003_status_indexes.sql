-- See the migration of the same name for one server. Each statement ends with a semicolon at the end of a line.
create index orders_pending on orders (id) where status = 'pending';
create index orders_paid on orders (id) where status = 'paid';
create index orders_shipped on orders (id) where status = 'shipped';
create index orders_delivered on orders (id) where status = 'delivered';
create index orders_canceled on orders (id) where status = 'canceled';

-- With the bucket, so that the orders of a user are counted in the index alone.
create index orders_of_user on orders (user_id, id, status) include (bucket);

drop index orders_by_status;
drop index orders_by_user;

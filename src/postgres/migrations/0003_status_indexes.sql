-- One index for each status, because an order is in exactly one. With the status as a column, PostgreSQL may prefer the
-- primary key, and then reads all orders of other statuses before the first match.
create index orders_pending on orders (id) where status = 'pending';
create index orders_paid on orders (id) where status = 'paid';
create index orders_shipped on orders (id) where status = 'shipped';
create index orders_delivered on orders (id) where status = 'delivered';
create index orders_canceled on orders (id) where status = 'canceled';

-- The status is a key: of an included column, a page would read the row of each order of its user to compare it.
create index orders_of_user on orders (user_id, id, status);

-- A dump of the data is restored with an empty search path, and fires the triggers.
alter function count_new_users() set search_path from current;
alter function count_gone_users() set search_path from current;
alter function count_new_orders() set search_path from current;
alter function count_changed_orders() set search_path from current;

-- Last, because reads wait from here on until the end of the transaction.
drop index orders_by_status;
drop index orders_by_user;

-- The schema on several servers. Each statement ends with a semicolon and an empty line, and runs on its own: Citus
-- sends the text of a query on to its workers, which accept one statement. As in the other layout, every table has a
-- primary key, times are RFC 3339 text in UTC with milliseconds, which sorts by time, and text with an index sorts by
-- bytes ("C").

-- One row, on the coordinator: marks a database as ours.
create table user_api (
  -- Random, because a restore of the data alone adds a second row.
  id text collate "C" primary key default md5(random()::text || clock_timestamp()::text),
  schema_version integer not null,
  layout text not null check (layout in ('plain', 'citus')),
  -- Written now and then, to see that it can be.
  probed_at text not null
);

-- On every server, since an order refers to its user.
create table users (
  id bigserial primary key,
  email text not null check (length(email) between 3 and 254),
  -- The same for all spellings of one mailbox (src/email.ts).
  email_key text collate "C" not null unique,
  name text check (length(name) between 1 and 200),
  -- Text, since jsonb has an order of members of its own.
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null check (created_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$'),
  updated_at text not null check (updated_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
);

select create_reference_table('users');

-- The number of users, on the coordinator, in 16 slots. A connection updates one of them: with a single row, each
-- transaction would wait for the commit of the one before. Only the sum has a meaning.
create table user_totals (
  slot integer primary key check (slot between 0 and 15),
  users bigint not null
) with (fillfactor = 20);

insert into user_totals (slot, users)
select slot, 0
from generate_series(0, 15) as slot;

-- New orders have the id `number * 1024 + bucket`, and this gives the numbers. Ids stay below 2^53.
create sequence orders_id_seq maxvalue 8796093022207;

-- `bucket` follows from the user (`user_id % 1024`) and determines the shard. So a user's orders are on one shard, and
-- a new order is found by its id alone.
create table orders (
  bucket integer not null check (bucket = user_id % 1024),
  id bigint not null,
  user_id bigint not null,
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  -- Never changed, and always read whole: so a JSON array, not a table of its own.
  items text not null check (json_typeof(items::json) = 'array'),
  total bigint not null check (total between 0 and 9007199254740991),
  status text collate "C" not null
    check (status in ('pending', 'paid', 'shipped', 'delivered', 'canceled')),
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null check (created_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$'),
  updated_at text not null check (updated_at ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$'),
  -- The id first: a page of all orders is read in its order.
  primary key (id, bucket)
);

select create_distributed_table('orders', 'bucket', colocate_with => 'none');

alter table orders add constraint orders_user_id_fkey foreign key (user_id) references users (id);

-- One index for each status: see the other layout.
create index orders_pending on orders (id) where status = 'pending';

create index orders_paid on orders (id) where status = 'paid';

create index orders_shipped on orders (id) where status = 'shipped';

create index orders_delivered on orders (id) where status = 'delivered';

create index orders_canceled on orders (id) where status = 'canceled';

-- With the bucket, so that the orders of a user are counted in the index alone.
create index orders_of_user on orders (user_id, id, status) include (bucket);

-- The number of orders by bucket and status, on the shard of the orders.
create table order_totals (
  bucket integer primary key,
  pending bigint not null,
  paid bigint not null,
  shipped bigint not null,
  delivered bigint not null,
  canceled bigint not null
) with (fillfactor = 20);

select create_distributed_table('order_totals', 'bucket', colocate_with => 'orders');

insert into order_totals (bucket, pending, paid, shipped, delivered, canceled)
select bucket, 0, 0, 0, 0, 0
from generate_series(0, 1023) as bucket;

-- The bucket of each order whose id does not contain it: it was copied or imported with an id of its own.
create table order_buckets (
  order_id bigint primary key,
  bucket integer not null check (bucket between 0 and 1023)
);

select create_distributed_table('order_buckets', 'order_id', colocate_with => 'none');

-- Orders that were imported without an id: which record of which import each was.
create table imported_orders (
  import_key text collate "C" primary key check (length(import_key) between 1 and 255),
  order_id bigint not null
);

select create_distributed_table('imported_orders', 'import_key', colocate_with => 'none');

create table tokens (
  id bigserial primary key,
  -- SHA-256 of the token: the token itself is nowhere.
  hash text collate "C" not null unique check (length(hash) = 64),
  name text collate "C" not null check (length(name) between 1 and 100),
  scope text not null check (scope in ('read', 'write')),
  created_at text not null,
  expires_at text,
  last_used_at text collate "C",
  revoked_at text
);

create unique index tokens_by_valid_name on tokens (name) where revoked_at is null;

select create_reference_table('tokens');

create table idempotency_keys (
  -- Hash of the token that the key belongs to.
  owner text collate "C" not null,
  key text collate "C" not null check (length(key) between 1 and 255),
  fingerprint text not null,
  -- The record of the first response, as it was then.
  record text not null check (json_typeof(record::json) = 'object'),
  created_at text collate "C" not null,
  primary key (key, owner)
);

-- By the key, not its owner: one client may have most of them.
select create_distributed_table('idempotency_keys', 'key', colocate_with => 'none');

create index idempotency_keys_by_time on idempotency_keys (created_at);

-- Changes of orders that are not in `change_outbox` yet, which is on the coordinator: on the shard of the order, so that
-- a write of an order is on one server.
create table order_outbox (
  bucket integer not null,
  type smallint not null,
  record_id bigint not null,
  version bigint not null,
  status smallint,
  token text,
  created_at bigint not null,
  primary key (record_id, version, bucket)
);

select create_distributed_table('order_outbox', 'bucket', colocate_with => 'orders');

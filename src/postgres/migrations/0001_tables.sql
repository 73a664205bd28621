-- What both layouts have. Times are RFC 3339 text in UTC with milliseconds: it sorts as time does, and
-- is what is shown. Text that an index is on sorts by bytes ("C"): what a new version of the C library
-- does to the order of other text would leave the index wrong.

-- One row: marks a database as ours.
create table user_api (
  schema_version integer not null,
  layout text not null check (layout in ('plain', 'citus')),
  -- Written now and then, to see that it can be.
  probed_at text not null
);

create table users (
  id bigserial primary key,
  email text not null check (length(email) between 3 and 254),
  -- The email in lower case (full Unicode, in no locale, so not the server's own lower()): what makes
  -- it unique.
  email_key text collate "C" not null unique,
  name text check (length(name) between 1 and 200),
  -- Text, since jsonb has an order of members of its own.
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null,
  updated_at text not null
);

create table orders (
  id bigserial,
  user_id bigint not null,
  currency text not null check (length(currency) = 3),
  -- Never changed, and always read whole: so a JSON array, not a table of its own.
  items text not null check (json_typeof(items::json) = 'array'),
  total bigint not null check (total between 0 and 9007199254740991),
  status text collate "C" not null
    check (status in ('pending', 'paid', 'shipped', 'delivered', 'canceled')),
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null,
  updated_at text not null
);

-- Ends in the id, so that a page comes out of it in order.
create index orders_by_status on orders (status, id);

-- Orders that were imported without an id: which record of which import each was.
create table imported_orders (
  import_key text collate "C" primary key check (length(import_key) between 1 and 255),
  order_id bigint not null
);

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

create table idempotency_keys (
  -- Hash of the token that the key belongs to.
  owner text collate "C" not null,
  key text collate "C" not null check (length(key) between 1 and 255),
  fingerprint text not null,
  -- The record of the first answer, as it was then.
  record text not null check (json_typeof(record::json) = 'object'),
  created_at text collate "C" not null,
  primary key (key, owner)
);

create index idempotency_keys_by_time on idempotency_keys (created_at);

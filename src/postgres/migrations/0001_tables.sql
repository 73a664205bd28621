-- The tables of both layouts. Times are RFC 3339 text in UTC with milliseconds, as in responses, which sorts by
-- time. Indexed text sorts by bytes (collation "C"): with another collation, an update of the C library can change
-- the order and so corrupt the index.

-- One row. It identifies a database of user-api.
create table user_api (
  schema_version integer not null,
  layout text not null check (layout in ('plain', 'citus')),
  -- Written by the health check.
  probed_at text not null
);

create table users (
  id bigserial primary key,
  email text not null check (length(email) between 3 and 254),
  -- The email in lower case, for uniqueness. Set by the program: the result of lower() depends on the locale.
  email_key text collate "C" not null unique,
  name text check (length(name) between 1 and 200),
  -- Text, because jsonb does not keep the order of members.
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null,
  updated_at text not null
);

create table orders (
  id bigserial,
  user_id bigint not null,
  currency text not null check (length(currency) = 3),
  -- Never changed, and always read as a whole: hence a JSON array, not a separate table.
  items text not null check (json_typeof(items::json) = 'array'),
  total bigint not null check (total between 0 and 9007199254740991),
  status text collate "C" not null
    check (status in ('pending', 'paid', 'shipped', 'delivered', 'canceled')),
  metadata text not null check (json_typeof(metadata::json) = 'object'),
  version bigint not null check (version >= 1),
  created_at text not null,
  updated_at text not null
);

-- Ends with the id, so that a page is read from it in order.
create index orders_by_status on orders (status, id);

-- Orders that were imported without an id. The key names the import and the line.
create table imported_orders (
  import_key text collate "C" primary key check (length(import_key) between 1 and 255),
  order_id bigint not null
);

create table tokens (
  id bigserial primary key,
  -- SHA-256 of the token. The token itself is not stored.
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
  -- The record as returned by the first response.
  record text not null check (json_typeof(record::json) = 'object'),
  created_at text collate "C" not null,
  primary key (key, owner)
);

create index idempotency_keys_by_time on idempotency_keys (created_at);

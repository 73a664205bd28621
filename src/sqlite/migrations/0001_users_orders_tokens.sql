-- Times are RFC 3339 text in UTC with milliseconds: it sorts as time does.
-- AUTOINCREMENT, so that the id of a deleted row is never given to another.

create table users (
  id integer primary key autoincrement,
  email text not null check (length(email) between 3 and 254),
  -- The email in lower case (full Unicode, so not SQLite's own lower()): what makes it unique.
  email_key text not null unique,
  name text check (length(name) between 1 and 200),
  metadata text not null check (json_type(metadata) = 'object'),
  version integer not null check (version >= 1),
  created_at text not null,
  updated_at text not null
) strict;

create table orders (
  id integer primary key autoincrement,
  user_id integer not null references users (id) on delete restrict,
  currency text not null check (length(currency) = 3),
  -- Never changed, and always read whole: so a JSON array, not a table of its own.
  items text not null check (json_type(items) = 'array'),
  total integer not null check (total between 0 and 9007199254740991),
  status text not null check (status in ('pending', 'paid', 'shipped', 'delivered', 'canceled')),
  metadata text not null check (json_type(metadata) = 'object'),
  version integer not null check (version >= 1),
  created_at text not null,
  updated_at text not null
) strict;

-- Each ends in the id, as every index does: so a page comes out of it in order.
create index orders_by_user on orders (user_id);
create index orders_by_user_and_status on orders (user_id, status);
create index orders_by_status on orders (status);

create table tokens (
  id integer primary key autoincrement,
  -- SHA-256 of the token: the token itself is nowhere.
  hash text not null unique check (length(hash) = 64),
  name text not null check (length(name) between 1 and 100),
  scope text not null check (scope in ('read', 'write')),
  created_at text not null,
  expires_at text,
  last_used_at text,
  revoked_at text
) strict;

create unique index tokens_by_valid_name on tokens (name) where revoked_at is null;

create table idempotency_keys (
  -- Hash of the token that the key belongs to.
  owner text not null,
  key text not null check (length(key) between 1 and 255),
  fingerprint text not null,
  -- The record of the first answer, as it was then.
  record text not null check (json_type(record) = 'object'),
  created_at text not null,
  primary key (owner, key)
) strict, without rowid;

create index idempotency_keys_by_time on idempotency_keys (created_at);

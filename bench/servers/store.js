/**
 * The peers' storage, once for bun:sqlite and better-sqlite3, whose calls are the same this far:
 * the service's own schema and SQL, one transaction a request.
 */

const user_columns = "id, email, name, metadata, version, created_at, updated_at";
const order_columns =
  "id, user_id, currency, items, total, status, metadata, version, created_at, updated_at";
const KEY_LIFETIME_MS = 24 * 60 * 60 * 1000;

/**
 * As the service has it, but for `durability`: `full` syncs every commit before it is answered;
 * `normal` does not. `normal` is what better-sqlite3 is built with once WAL is on, as its README
 * advises, and what guides advise for bun:sqlite, which itself stays at `full`.
 * @param {{ exec(sql: string): unknown }} db
 * @param {string} durability
 */
export function configure(db, durability) {
  db.exec("pragma busy_timeout = 5000");
  db.exec("pragma journal_mode = wal");
  db.exec("pragma cache_size = -16000");
  db.exec("pragma wal_autocheckpoint = 4000");
  db.exec("pragma foreign_keys = on");
  db.exec(`pragma synchronous = ${durability}`);
}

/** @param {{ expires_at: string | null, revoked_at: string | null }} token */
export function isActive(token) {
  if (token.revoked_at !== null) return false;
  return token.expires_at === null || Date.now() < Date.parse(token.expires_at);
}

/**
 * @param {any} db an open database of either library
 * @param {(text: string) => string} sha256 hexadecimal
 */
export function createStore(db, sha256) {
  const token = db.prepare(
    "select name, scope, expires_at, revoked_at from tokens where hash = $hash",
  );
  const user = db.prepare(`select ${user_columns} from users where id = $id`);
  const insertUser = db.prepare(`
    insert into users (email, email_key, name, metadata, version, created_at, updated_at)
    values ($email, $email_key, $name, $metadata, 1, $now, $now)
    on conflict (email_key) do nothing
    returning ${user_columns}
  `);
  const insertOrder = db.prepare(`
    insert into orders (user_id, user_position, currency, items, total, status, metadata, version,
      created_at, updated_at)
    values ($user_id,
      (select coalesce(max(user_position), 0) + 1 from orders where user_id = $user_id),
      $currency, $items, $total, 'pending', $metadata, 1, $now, $now)
    returning ${order_columns}
  `);
  const claimed = db.prepare(`
    select fingerprint, record from idempotency_keys
    where owner = $owner and key = $key and created_at > $expired
  `);
  const claim = db.prepare(`
    insert or replace into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ($owner, $key, $fingerprint, $record, $now)
  `);

  /** A new order; `null` when its user does not exist. */
  function insert(fields) {
    if (!user.get({ id: fields.user_id })) return null;
    let total = 0;
    for (const { quantity, unit_price } of fields.items) total += quantity * unit_price;
    const row = insertOrder.get({
      user_id: fields.user_id,
      currency: fields.currency,
      items: JSON.stringify(fields.items),
      total,
      metadata: JSON.stringify(fields.metadata ?? {}),
      now: new Date().toISOString(),
    });
    return { ...row, items: JSON.parse(row.items), metadata: JSON.parse(row.metadata) };
  }

  const placeOnce = db.transaction((fields, owner, key, fingerprint) => {
    const expired = new Date(Date.now() - KEY_LIFETIME_MS).toISOString();
    const earlier = claimed.get({ owner, key, expired });
    if (earlier) {
      const record = earlier.fingerprint === fingerprint ? JSON.parse(earlier.record) : null;
      return { record, replayed: true };
    }
    const record = insert(fields);
    if (record !== null) {
      const now = new Date().toISOString();
      claim.run({ owner, key, fingerprint, record: JSON.stringify(record), now });
    }
    return { record, replayed: false };
  });

  return {
    /** The token behind these credentials, with its hash; `null` when it is none that is valid. */
    authenticate(credentials) {
      const hash = sha256(credentials);
      const row = token.get({ hash });
      return row && isActive(row) ? { ...row, hash } : null;
    },
    getUser(id) {
      const row = user.get({ id });
      return row ? { ...row, metadata: JSON.parse(row.metadata) } : null;
    },
    /**
     * `null` when the email is taken.
     * @param {{ email: string, name?: any, metadata?: any }} fields
     */
    createUser({ email, name = null, metadata = {} }) {
      const row = insertUser.get({
        email,
        email_key: email.toLowerCase(),
        name,
        metadata: JSON.stringify(metadata),
        now: new Date().toISOString(),
      });
      return row ? { ...row, metadata: JSON.parse(row.metadata) } : null;
    },
    /** `record` is `null` when the order is refused. */
    placeOrder(fields, owner, key) {
      if (key === undefined) return { record: insert(fields), replayed: false };
      const fingerprint = sha256(`POST /api/v1/orders\n${JSON.stringify(fields)}`);
      return placeOnce.immediate(fields, owner, key, fingerprint);
    },
  };
}

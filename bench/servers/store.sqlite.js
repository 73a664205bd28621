/**
 * The service's own schema and SQL, with one transaction per request. bun:sqlite and better-sqlite3 have the same
 * methods as far as they are used here.
 */
import * as shared from "./store.js";

const { userColumns, orderColumns, now, toUser, toOrder } = shared;

/** @param {string} path */
export async function createStore(path) {
  const { default: Database } = await import(process.env.SQLITE);
  const db = new Database(path, { readwrite: true, strict: true, fileMustExist: true });
  // As in the service, except that `normal` does not sync each commit.
  db.exec("pragma busy_timeout = 5000");
  db.exec("pragma journal_mode = wal");
  db.exec("pragma cache_size = -16000");
  db.exec("pragma wal_autocheckpoint = 4000");
  db.exec("pragma foreign_keys = on");
  db.exec(`pragma synchronous = ${process.env.DURABILITY}`);

  const token = db.prepare(
    "select name, scope, expires_at, revoked_at from tokens where hash = $hash",
  );
  const user = db.prepare(`select ${userColumns} from users where id = $id`);
  const count = db.prepare("select count(*) as total from users");
  const page = db.prepare(
    `select ${userColumns} from users order by id limit $limit offset $offset`,
  );
  const insertUser = db.prepare(`
    insert into users (email, email_key, name, metadata, version, created_at, updated_at)
    values ($email, $email_key, $name, $metadata, 1, $now, $now)
    on conflict (email_key) do nothing
    returning ${userColumns}
  `);
  const insertOrder = db.prepare(`
    insert into orders (user_id, currency, items, total, status, metadata, version, created_at,
      updated_at)
    values ($user_id, $currency, $items, $total, 'pending', $metadata, 1, $now, $now)
    returning ${orderColumns}
  `);
  const claimed = db.prepare(`
    select fingerprint, record from idempotency_keys
    where owner = $owner and key = $key and created_at > $expiry
  `);
  const claim = db.prepare(`
    insert or replace into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ($owner, $key, $fingerprint, $record, $now)
  `);

  /** A new order; `null` if its user does not exist. */
  function insert({ user_id, currency, items, metadata = {} }) {
    if (!user.get({ id: user_id })) return null;
    const row = insertOrder.get({
      user_id,
      currency,
      items: JSON.stringify(items),
      total: shared.totalOf(items),
      metadata: JSON.stringify(metadata),
      now: now(),
    });
    return toOrder(row);
  }

  const placeOnce = db.transaction((fields, owner, key) => {
    const fingerprint = shared.fingerprintOf(fields);
    const earlier = claimed.get({ owner, key, expiry: shared.expiry() });
    if (earlier) return shared.replay(earlier, fingerprint);
    const record = insert(fields);
    if (record !== null)
      claim.run({ owner, key, fingerprint, record: JSON.stringify(record), now: now() });
    return { record, replayed: false };
  });

  return {
    /** The token of these credentials, with its hash; `null` if there is no valid one. */
    authenticate(credentials) {
      const hash = shared.sha256(credentials);
      const row = token.get({ hash });
      return row && shared.isActive(row) ? { ...row, hash } : null;
    },
    /** `null` if it does not exist. */
    getUser(id) {
      const row = user.get({ id });
      return row ? toUser(row) : null;
    },
    listUsers({ limit, offset }) {
      return { users: page.all({ limit, offset }).map(toUser), total: count.get().total };
    },
    /** `null` if the email is taken. */
    createUser({ email, name = null, metadata = {} }) {
      const row = insertUser.get({
        email,
        email_key: email.toLowerCase(),
        name,
        metadata: JSON.stringify(metadata),
        now: now(),
      });
      return row ? toUser(row) : null;
    },
    /** `record` is `null` if the order is rejected. */
    placeOrder(fields, owner, key) {
      if (key === undefined) return { record: insert(fields), replayed: false };
      return placeOnce.immediate(fields, owner, key);
    },
  };
}

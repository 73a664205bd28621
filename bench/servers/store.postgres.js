/** The service's own schema on PostgreSQL, with postgres.js or pg: prepared statements, one transaction per request. */
import * as shared from "./store.js";

const { userColumns, orderColumns, now, toUser, toOrder } = shared;

/** The default of the service, too. */
const CONNECTIONS = 10;
/** How long a token is cached, as in the service. */
const TOKEN_LIFETIME_MS = 4_000;
const INT8 = 20;
const FOREIGN_KEY_VIOLATION = "23503";

/** As the service has counted them: these servers add nothing to it, which only saves them time. */
const total = "select totals[1] from change_feed order by xid desc limit 1";
const statements = {
  token: "select name, scope, expires_at, revoked_at from tokens where hash = $1",
  user: `select ${userColumns} from users where id = $1`,
  count: `select (${total}) as total`,
  page: `
    select ${userColumns}, (${total}) as total
    from users order by id limit $1 offset $2
  `,
  insert_user: `
    insert into users (id, email, email_key, name, metadata, version, created_at, updated_at)
    values (nextval('users_id_seq'), $1, $2, $3, $4, 1, $5, $5)
    on conflict (email_key) do nothing
    returning ${userColumns}
  `,
  insert_order: `
    insert into orders (id, user_id, currency, items, total, status, metadata, version,
      created_at, updated_at)
    values (nextval('orders_id_seq'), $1, $2, $3, $4, 'pending', $5, 1, $6, $6)
    returning ${orderColumns}
  `,
  claimed: `
    select fingerprint, record from idempotency_keys
    where owner = $1 and key = $2 and created_at > $3
  `,
  // A request with the same key that runs at the same time makes this wait, and then return no row.
  claim: `
    insert into idempotency_keys (owner, key, fingerprint, record, created_at)
    values ($1, $2, $3, $4, $5)
    on conflict (key, owner) do update
    set fingerprint = excluded.fingerprint, record = excluded.record,
      created_at = excluded.created_at
    where idempotency_keys.created_at <= $6
    returning key
  `,
};

async function connectPostgres(url) {
  const { default: postgres } = await import("postgres");
  const int8 = { to: INT8, from: [INT8], parse: Number, serialize: String };
  const sql = postgres(url, { max: CONNECTIONS, types: { int8 } });
  const queryOn = (session) => (name, values) =>
    session.unsafe(statements[name], values, { prepare: true });
  return {
    query: queryOn(sql),
    transaction: (work) => sql.begin((session) => work(queryOn(session))),
  };
}

async function connectPg(url) {
  const { default: pg } = await import("pg");
  pg.types.setTypeParser(INT8, Number);
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS });
  const queryOn = (session) => async (name, values) =>
    (await session.query({ name, text: statements[name], values })).rows;
  async function transaction(work) {
    const client = await pool.connect();
    try {
      await client.query("begin");
      const result = await work(queryOn(client));
      await client.query("commit");
      return result;
    } catch (error) {
      await client.query("rollback");
      throw error;
    } finally {
      client.release();
    }
  }
  return { query: queryOn(pool), transaction };
}

/** @param {string} url */
export async function createStore(url) {
  const connect = process.env.POSTGRES === "pg" ? connectPg : connectPostgres;
  const { query, transaction } = await connect(url);
  const tokens = new Map();
  const overtaken = new Error("a request with the same key was faster");

  async function insertOrder(run, { user_id, currency, items, metadata = {} }) {
    const fields = [JSON.stringify(items), shared.totalOf(items), JSON.stringify(metadata), now()];
    const [row] = await run("insert_order", [user_id, currency, ...fields]);
    return toOrder(row);
  }

  function placeOnce(fields, owner, key) {
    return transaction(async (run) => {
      const fingerprint = shared.fingerprintOf(fields);
      const expiry = shared.expiry();
      const [earlier] = await run("claimed", [owner, key, expiry]);
      if (earlier) return shared.replay(earlier, fingerprint);
      const record = await insertOrder(run, fields);
      const claim = [owner, key, fingerprint, JSON.stringify(record), now(), expiry];
      if ((await run("claim", claim)).length === 0) throw overtaken;
      return { record, replayed: false };
    });
  }

  return {
    async authenticate(credentials) {
      const hash = shared.sha256(credentials);
      let entry = tokens.get(hash);
      if (entry === undefined || entry.untilMs < Date.now()) {
        const [row] = await query("token", [hash]);
        if (!row) return null;
        entry = { row, untilMs: Date.now() + TOKEN_LIFETIME_MS };
        tokens.set(hash, entry);
      }
      return shared.isActive(entry.row) ? { ...entry.row, hash } : null;
    },
    async getUser(id) {
      const [row] = await query("user", [id]);
      return row ? toUser(row) : null;
    },
    async listUsers({ limit, offset }) {
      const rows = await query("page", [limit, offset]);
      const [{ total }] = rows.length > 0 ? rows : await query("count", []);
      return { users: rows.map(({ total, ...row }) => toUser(row)), total };
    },
    async createUser({ email, name = null, metadata = {} }) {
      const fields = [email, email.toLowerCase(), name, JSON.stringify(metadata), now()];
      const [row] = await query("insert_user", fields);
      return row ? toUser(row) : null;
    },
    async placeOrder(fields, owner, key) {
      try {
        if (key !== undefined) return await placeOnce(fields, owner, key);
        return { record: await insertOrder(query, fields), replayed: false };
      } catch (error) {
        if (error === overtaken) return this.placeOrder(fields, owner, key);
        if (error.code === FOREIGN_KEY_VIOLATION) return { record: null, replayed: false };
        throw error;
      }
    },
  };
}

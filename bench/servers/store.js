/** What the stores of the other servers share. */
import { hash } from "node:crypto";

export const userColumns = "id, email, name, metadata, version, created_at, updated_at";
export const orderColumns =
  "id, user_id, currency, items, total, status, metadata, version, created_at, updated_at";

const KEY_LIFETIME_MS = 24 * 60 * 60 * 1000;

export const sha256 = (text) => hash("sha256", text, "hex");
export const now = () => new Date().toISOString();
/** Keys that were created before this are expired. */
export const expiry = () => new Date(Date.now() - KEY_LIFETIME_MS).toISOString();
export const fingerprintOf = (order) => sha256(`POST /api/v1/orders\n${JSON.stringify(order)}`);
export const totalOf = (items) =>
  items.reduce((total, { quantity, unit_price }) => total + quantity * unit_price, 0);

export function isActive({ expires_at, revoked_at }) {
  return revoked_at === null && (expires_at === null || Date.now() < Date.parse(expires_at));
}

export function toUser(row) {
  return { ...row, metadata: JSON.parse(row.metadata) };
}
export function toOrder(row) {
  return { ...row, items: JSON.parse(row.items), metadata: JSON.parse(row.metadata) };
}
/** The first response to a key again; the record is `null` if the request is another one. */
export function replay(claim, fingerprint) {
  const record = claim.fingerprint === fingerprint ? JSON.parse(claim.record) : null;
  return { record, replayed: true };
}

/** Opens the database of this process: PostgreSQL if DATABASE is a URL, otherwise SQLite. */
export async function openStore() {
  const { DATABASE } = process.env;
  const name = DATABASE.startsWith("postgres://") ? "postgres" : "sqlite";
  const { createStore } = await import(`./store.${name}.js`);
  return createStore(DATABASE);
}

/** Databases in which others could hide rows from this role, or have their functions run as it. */
import { fail } from "../../base/error.ts";
import type { Session } from "./connection.ts";

const relations = [
  ...["user_api", "users", "orders", "tokens", "idempotency_keys", "order_index", "change_outbox"],
  ...["changes", "change_feed", "feed_state", "feed_lock", "users_id_seq", "orders_id_seq"],
  ...["order_numbers", "tokens_id_seq", "two_phase_commit"],
];
const isOurs = `relname in ('${relations.join("', '")}') and pg_catalog.pg_table_is_visible(oid)`;

// In schemas of the path. Superusers, and the owners of the database and of the schema are trusted, but not the owner of one
// with the name of this role, which somebody may have added to the path.
const creators = `
  select pg_catalog.format(
    'other roles may create functions in the schema %I, and so run them as this user: run "%s"', nspname,
    case when grantee = nspowner then pg_catalog.format('alter schema %I owner to %I', nspname, current_user)
    else pg_catalog.format('revoke create on schema %I from %s', nspname,
      coalesce(pg_catalog.quote_ident(rolname), 'public')) end
  ) as problem
  from pg_catalog.pg_namespace
  join pg_catalog.pg_database on datname = pg_catalog.current_database()
  cross join pg_catalog.aclexplode(coalesce(nspacl, pg_catalog.acldefault('n', nspowner)))
  left join pg_catalog.pg_roles on pg_roles.oid = grantee
  where nspname = any(pg_catalog.current_schemas(true))
    and privilege_type = 'CREATE'
    and rolsuper is not true
    and rolname is distinct from current_user
    and grantee not in (datdba, 'pg_database_owner'::regrole::oid)
    and (grantee <> nspowner or nspname = current_user)
`;
const elsewhere = `
  select pg_catalog.format('%s is not in the schema of user_api: set search_path in the URL', oid::regclass)
  from pg_catalog.pg_class
  where ${isOurs}
    and relnamespace <> (select relnamespace from pg_catalog.pg_class where ${isOurs} and relname = 'user_api')
`;
const hidden = `
  select pg_catalog.format(
    case when relforcerowsecurity and pg_catalog.pg_has_role(relowner, 'usage')
    then 'row-level security hides rows from this user: run "alter table %I no force row level security" as the owner'
    else 'row-level security hides rows from this user: run "alter table %I disable row level security" as the owner, '
      'or make this user the owner' end, relname) as problem
  from pg_catalog.pg_class
  where ${isOurs} and pg_catalog.row_security_active(oid)
`;

/** @returns a function that throws {AppError} operator if there is a problem, with what to do */
const requireNone = (problems: string) => async (session: Session) => {
  const row = await session.first<{ problem: string }>(problems);
  if (row !== null) fail("operator", row.problem);
};
export const requireAllRows = requireNone(hidden);
export const requireTrusted = requireNone([creators, elsewhere, hidden].join(" union all "));

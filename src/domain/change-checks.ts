/** What the changes of a database must fulfill, as statements that SQLite and PostgreSQL understand. */
import { LAST_OF_USERS } from "./change.ts";
import { orderStatuses } from "./order.ts";

const changedRecord = `case when type <= ${LAST_OF_USERS} then 'user' else 'order' end, record_id`;
const statusCodes = orderStatuses.map((name, at) => `when '${name}' then ${at + 1}`).join(" ");

/** @param changes a query for all of them. @param schema of functions that are built in. @returns sections with their queries */
export function changeChecks(changes: string, schema: "" | "pg_catalog." = "") {
  const gaps = `
    select ${schema}format('the changes are not consecutive: %s of them from %s to %s',
      ${schema}count(*), ${schema}min(id), ${schema}max(id)) as problem
    from (${changes}) as changes
    having ${schema}count(*) <> ${schema}max(id) - ${schema}min(id) + 1
  `;
  // The first change of a record that is kept may have any version: earlier ones may have expired.
  const jumps = `
    select ${schema}format('the changes of %s %s do not ascend by one: version %s follows %s',
      ${changedRecord}, version, version_before) as problem
    from (
      select type, record_id, version,
        ${schema}lag(type) over of_record as type_before,
        ${schema}lag(version) over of_record as version_before
      from (${changes}) as changes
      window of_record as (partition by type > ${LAST_OF_USERS}, record_id order by id)
    ) as changed
    where case
      when type_before is null then false
      -- A user with the id of a deleted one is imported.
      when type_before = 3 or type in (1, 4) then not (type_before = 3 and type = 1)
      when type = 3 then version <> version_before
      else version <> version_before + 1
    end
  `;
  const behind = `
    select ${schema}format('the last change of %s %s does not agree with the record', ${changedRecord}) as problem
    from (
      select ${schema}max(id) as id from (${changes}) as changes
      group by type > ${LAST_OF_USERS}, record_id
    ) as newest
    join (${changes}) as changed on changed.id = newest.id
    left join users on type <= ${LAST_OF_USERS} and users.id = record_id
    left join orders on type > ${LAST_OF_USERS} and orders.id = record_id
    where case
      when type = 3 then users.id is not null
      when type <= ${LAST_OF_USERS} then users.version is distinct from changed.version
      else orders.version is distinct from changed.version
        or case orders.status ${statusCodes} end is distinct from changed.status
    end
  `;
  return [
    ["the sequence of changes", gaps],
    ["the changes of each record", jumps],
    ["the last change of each record", behind],
  ] as const;
}

const types =
  '{bigint,integer,smallint,numeric,float8,text,name,json,oid,regclass,interval,"bigint[]","text[]"}';

/**
 * Creates operators that fail, as another role could: one for each pair of types for which pg_catalog has none, because
 * PostgreSQL prefers an exact match in any schema of the path.
 */
export const hostileOperators = `
  do $$
  declare
    it record;
  begin
    for it in
      select *
      from unnest('${types}'::regtype[]) as one, unnest('${types}'::regtype[]) as other,
        unnest('{=,<>,<,<=,>,>=,+,-,*,/,%,||,~,~~,->>}'::name[]) as name
      where not exists (select from pg_operator where (oprname, oprleft, oprright) = (name, one::oid, other::oid))
    loop
      execute format('create or replace function hostile(%1$s, %2$s) returns bool language plpgsql
        as ''begin raise ''''an operator of others''''; end'';
        create operator %3$s (function = hostile, leftarg = %1$s, rightarg = %2$s)', it.one, it.other, it.name);
    end loop;
  end $$
`;

/**
 * Operators as a role could create that may CREATE in the schema: one for every pair of types for which pg_catalog has none,
 * because PostgreSQL prefers an exact match in any schema of the path. Each one fails. All tests run beside them.
 */
const types = [
  ...["bigint", "integer", "smallint", "numeric", "float8", "text", "name", "json", "oid"],
  ...["regclass", "interval", "bigint[]", "text[]", '"char"'],
];
const operators = [
  "=",
  "<>",
  "<",
  "<=",
  ">",
  ">=",
  "+",
  "-",
  "*",
  "/",
  "%",
  "||",
  "~",
  "~~",
  "->>",
];

export const hostileOperators = `
  do $$
  declare
    one regtype;
    other regtype;
    operator text;
  begin
    foreach one in array array['${types.join("', '")}']::regtype[] loop
      foreach other in array array['${types.join("', '")}']::regtype[] loop
        execute format(
          'create function hostile(%s, %s) returns bool language plpgsql as
            $f$ begin raise ''an operator of others: %%'', $1; end $f$', one, other
        );
        foreach operator in array array['${operators.join("', '")}'] loop
          continue when exists (
            select from pg_operator where oprname = operator::name and oprleft = one::oid and oprright = other::oid
          );
          execute format(
            'create operator %s (function = hostile, leftarg = %s, rightarg = %s)', operator, one, other
          );
        end loop;
      end loop;
    end loop;
  end
  $$
`;

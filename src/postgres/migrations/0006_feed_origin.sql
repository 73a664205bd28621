-- The system identifier of the server, its timeline, and the database: another server, a failover, a restore to a point in
-- time and a copy of the database change one of them. A part is null if the server does not offer the function, or does
-- not permit it. The timeline of `pg_control_checkpoint` would be late after a failover.
create function feed_origin() returns bigint[] language plpgsql as $$
declare
  system bigint;
  timeline bigint;
begin
  begin
    select system_identifier into system
    from pg_control_system();
  exception when others then
  end;
  begin
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
  exception when others then
  end;
  return array[system, timeline, (select oid::bigint from pg_database where datname = current_database())];
end
$$

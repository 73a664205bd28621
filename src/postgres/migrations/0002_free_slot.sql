-- Counts in a slot that no other transaction has locked, so that a writer waits for nobody's commit: first in its own
-- slot, then in any. If all are locked, it waits for its own, with a timeout of its own: a batch of creates waits for
-- other rows for 0.2 s only, and would then run each create alone, which needs a slot, too.
create or replace function add_to_count(changed_list text, change bigint) returns void language plpgsql
set lock_timeout = '3s' as $$
declare
  own_slot integer := pg_backend_pid() % 16;
  free_slot integer;
begin
  select slot into free_slot
  from counts
  where list = changed_list and slot = own_slot
  for update skip locked;
  if free_slot is null then
    select slot into free_slot
    from counts
    where list = changed_list
    limit 1
    for update skip locked;
  end if;
  update counts
  set records = records + change
  where list = changed_list and slot = coalesce(free_slot, own_slot);
end
$$;

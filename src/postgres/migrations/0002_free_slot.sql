-- Updates the count in a slot that no other transaction has locked, so that a writer does not wait for the commit of
-- another one. It tries the slot of its process first, then any other. If all are locked, it waits for the first one. The
-- lock timeout is set here, because a batch of creates waits for other rows for only 0.2 s. Its creates would then run
-- alone, although each of them needs a slot, too.
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

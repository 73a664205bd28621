-- A batch of creates waits for a locked row for 0.2 s only. A slot of the counts is locked until another transaction has
-- committed, which takes longer if the disk or a standby is slow, and creates that run alone would need the same slot.
alter function add_to_count(text, bigint) set lock_timeout = '3s';

-- The records that exist have no changes.
insert into change_feed (name, first, last, last_xid, origin, next_xid, running)
values (md5(random()::text || clock_timestamp()::text), 1, 0, 0, feed_origin(), 0, '{}')

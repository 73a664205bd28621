-- The key of an email has one small sigma: the lower case of a capital sigma depends on its place in a word. Of emails
-- that differ only in a sigma, one gets the key. The others keep theirs.
update or ignore users
set email_key = replace(email_key, 'ς', 'σ')
where email_key like '%ς%';

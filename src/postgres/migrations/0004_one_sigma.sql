-- The key of an email has one small sigma: the lower case of a capital sigma depends on its place in a word. Of emails
-- that differ only in a sigma, one gets the key. The others keep theirs.
update users
set email_key = replace(email_key, 'ς', 'σ')
where id in (
    select min(id)
    from users
    where email_key like '%ς%'
    group by replace(email_key, 'ς', 'σ')
  )
  and not exists (
    select 1
    from users as other
    where other.email_key = replace(users.email_key, 'ς', 'σ')
  );

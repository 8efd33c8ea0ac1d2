-- Takes the advisory lock :ride, writes the fencing token into the file A, and holds on. The lease is the session: the server ends one that says
-- nothing for three seconds, and the lock with it.
set idle_session_timeout = '3s';
select pg_advisory_lock(:ride) \g /dev/null
select nextval('fence') \g A
select 1 \watch 0.5

-- No CYCLE, no CACHE; only nextval touches it, never setval, RESTART or TRUNCATE ... RESTART IDENTITY.
create sequence fence no cycle cache 1;

-- A row for each resource that was ever leased. Rows are never deleted: of two that insert the same row the one with the lower number could come last.
create table leases (
	resource text primary key,
	holder   text not null,
	token    bigint not null,
	expires  timestamptz not null
);

-- take returns the fencing token, or nothing while somebody else's lease runs. What follows "do update" is evaluated when the row is locked, so
-- the number is drawn by who gets the row, and the clock is read then.
create function take(what text, who text, lasts interval) returns bigint language sql as $$
	insert into leases as l values (what, who, nextval('fence'), clock_timestamp() + lasts)
	on conflict (resource) do update set holder = who, token = nextval('fence'), expires = clock_timestamp() + lasts
		where l.expires < clock_timestamp()
	returning token
$$;

-- renew and release compare the number: who lost the lease can do neither.
create function renew(what text, mine bigint, lasts interval) returns boolean language sql as $$
	with done as (
		update leases set expires = clock_timestamp() + lasts where resource = what and token = mine and expires > clock_timestamp() returning 1)
	select exists (select from done)
$$;

create function release(what text, mine bigint) returns boolean language sql as $$
	with done as (
		update leases set expires = '-infinity' where resource = what and token = mine and expires > clock_timestamp() returning 1)
	select exists (select from done)
$$;

-- The same two crawlers, with the pages in Postgres and nothing else: psql -Xq -f database.sql, in an empty database.
\pset format unaligned
create table pages (url text primary key, body text not null, token bigint not null);

\echo Each page has its token. A wrote with 33 and is paused, B writes with 34:
insert into pages values ('example.com/index', 'index by A', 33);
prepare write (text, text, bigint) as
	insert into pages values ($1, $2, $3)
	on conflict (url) do update set body = excluded.body, token = excluded.token where pages.token <= excluded.token
	returning url, body;
execute write ('example.com/index', 'index by B', 34);
\echo A wakes up. A page that B wrote is safe:
execute write ('example.com/index', 'index by A, late', 33);
\echo A page that B never wrote is not:
execute write ('example.com/contact', 'contact by A, late', 33);

-- So the token belongs to the domain. Who gets the lock says so first: the update waits for the pages that are being written under it.
create table domains (name text primary key, token bigint not null);
insert into domains values ('example.com', 33);
update domains set token = 34 where name = 'example.com' and token < 34;

-- A page is written with the domain's row locked. The lock is shared: pages of one crawler do not wait for each other.
prepare write_fenced (text, text, text, bigint) as
	insert into pages select name || '/' || $2, $3, token from domains where name = $1 and token = $4 for share
	on conflict (url) do update set body = excluded.body, token = excluded.token
	returning url, body;
\echo With the token of the domain, A is refused and B is not:
execute write_fenced ('example.com', 'news', 'news by A, late', 33);
execute write_fenced ('example.com', 'news', 'news by B', 34);

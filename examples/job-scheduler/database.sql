-- The same two leaders, with the results in Postgres and nothing else: psql -Xq -f database.sql, in an empty database.
\pset format unaligned
create table jobs (name text primary key, token bigint not null);
create table results (job text references jobs, run date, report text not null, primary key (job, run));
insert into jobs values ('report', 33);

-- The check of the token and the result are one transaction. The update locks the job's row; one that had to wait for it looks at the token again.
prepare finish (date, text, bigint) as
	with leader as (update jobs set token = $3 where name = 'report' and token <= $3 returning name)
	insert into results select name, $1, $2 from leader
	on conflict (job, run) do nothing
	returning run, report;

\echo A leads with 33 and is paused. B becomes leader, and says so before it begins:
update jobs set token = 34 where name = 'report' and token <= 34 returning token;
\echo A wakes up. B has not finished yet:
execute finish ('2026-11-30', 'report by A', 33);
\echo B finishes:
execute finish ('2026-11-30', 'report by B', 34);
\echo The job fires once more, with the same leader:
execute finish ('2026-11-30', 'report by B, again', 34);
select run, report from results;

create table seats (seat text primary key, holder text, until timestamptz, booked_by text);
insert into seats values ('12A');

-- clock_timestamp() and not now(), which is when the transaction began: a transaction may have waited since.
prepare hold(text) as update seats set holder = $1, until = clock_timestamp() + interval '5s'
	where seat = '12A' and booked_by is null and (holder is null or until < clock_timestamp());
prepare confirm(text) as update seats set booked_by = $1
	where seat = '12A' and booked_by is null and holder = $1 and until > clock_timestamp();

execute hold('A');
\echo A holds: UPDATE :ROW_COUNT
execute hold('B');
\echo B holds: UPDATE :ROW_COUNT
select pg_sleep_until(until + interval '1ms') from seats \g /dev/null
execute hold('B');
\echo B holds when that has run out: UPDATE :ROW_COUNT
execute confirm('A');
\echo A confirms: UPDATE :ROW_COUNT
execute confirm('B');
\echo B confirms: UPDATE :ROW_COUNT
select pg_sleep_until(until + interval '1ms') from seats \g /dev/null
execute hold('C');
\echo C holds when that has run out too: UPDATE :ROW_COUNT
select booked_by || ' has it' from seats \g (format=unaligned tuples_only=on)

drop table seats;

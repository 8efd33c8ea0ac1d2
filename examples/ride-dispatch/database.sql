create table rides (id int primary key, driver text, state text);
insert into rides values (7);

-- Five sessions at the same time. The update looks and writes in one step, so the row itself has the winner.
\! for driver in A B C D E; do psql -Xc "update rides set driver = '$driver' where id = 7 and driver is null" & done | sort | uniq -c
select driver as winner, chr(ascii('A') + (ascii(driver) - ascii('A') + 1) % 5) as loser from rides where id = 7 \gset

-- Each later write says who sends it.
update rides set state = 'on my way' where id = 7 and driver = :'winner';
\echo the winner goes on: UPDATE :ROW_COUNT
update rides set state = 'cancelled' where id = 7 and driver = :'loser';
\echo a loser writes: UPDATE :ROW_COUNT
update rides set driver = null where id = 7 and driver = :'winner';
\echo the winner gives it back: UPDATE :ROW_COUNT
update rides set driver = :'loser' where id = 7 and driver is null;
\echo another takes it: UPDATE :ROW_COUNT

drop table rides;

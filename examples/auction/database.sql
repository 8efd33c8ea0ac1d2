create table items (id int primary key, bid int not null default 0 check (bid <= 1000000));
insert into items values (1), (2);
prepare bid(int) as update items set bid = $1 where id = 1 and bid < $1;

execute bid(130);
\echo 130: UPDATE :ROW_COUNT
execute bid(120);
\echo 120: UPDATE :ROW_COUNT
execute bid(130);
\echo 130 again: UPDATE :ROW_COUNT

-- Thirty bids, each in a session of its own, 8 at a time, in no order.
\! seq 1071 1100 | sort -R | xargs -P 8 -I% psql -Xqc 'update items set bid = % where id = 2 and bid < %'
select format('%s is the highest bid', bid) from items where id = 2 \g (format=unaligned tuples_only=on)

drop table items;

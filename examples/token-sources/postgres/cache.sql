-- What CACHE does: two sessions draw from one sequence, the second while the first is open.
create sequence cached cache 20;
select nextval('cached');
\! psql -XqAtc "select nextval('cached')"
select nextval('cached');
drop sequence cached;

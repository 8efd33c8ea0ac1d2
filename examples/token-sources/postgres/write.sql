-- Takes the advisory lock :ride and writes once. The lock is waited for first and the number drawn then, in a transaction of its own.
select pg_advisory_lock(:ride) \g /dev/null
select nextval('fence') as token \gset
\setenv RIDE :ride
\setenv TOKEN :token
\! echo $TOKEN; curl -si -X PUT -H "Fencing-Token: $TOKEN" -d 'driver B' $PROXY/postgres/advisory/$RIDE | grep -E '^(HTTP|Fencing)'

-- Gives the lock KEYS[1] up if ARGV[1] still holds it. Returns 1, or 0 if the lease had run out.
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0

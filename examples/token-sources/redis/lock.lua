-- Takes a lock and counts the grants in one step: KEYS[1] is the lock, KEYS[2] its counter, ARGV[1] the holder, ARGV[2] the lease in milliseconds.
-- Returns the fencing token, or nothing while somebody holds the lock. The counter has no time to live and is never deleted.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return false
end
return redis.call('INCR', KEYS[2])

local r = redis.call('HMGET', KEYS[1], 'p', 'b', 't')
return seen(VOTED, r[1], r[2], r[3])

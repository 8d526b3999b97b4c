-- ARGV: how much longer to keep it, in ms
local r = cut(redis.call('GETRANGE', key, 0, HEAD - 1))
if not r or not lives(r) then return { ABSENT } end
if redis.call('PTTL', key) < 0 then return { ACTED } end
settle_birth(r)
-- Both by as much, so that the lease stays what it is.
local extra = math.min(tonumber(ARGV[1]), FOREVER - r.tail)
r.tail, r.expires = r.tail + extra, record_end(r) + extra
finish_even_if_full()
redis.call('SETRANGE', key, 57, struct.pack('>I8', r.tail))
redis.call('SETRANGE', key, 81, struct.pack('>I8', r.created))
redis.call('SETRANGE', key, 97, struct.pack('>I8', r.expires))
redis.call('PEXPIREAT', key, math.max(r.expires, r.graved))
return { ACTED }

-- ARGV: token, lease in ms
local r = get()
if not r or r.state ~= 'P' or r.token ~= ARGV[1] or not lives(r) then return { ABSENT } end
local now = clock()
settle_birth(r, now)
tend_graves(r, now)
r.early, r.expires = 0, now + tonumber(ARGV[2]) + r.tail
finish_even_if_full()
put(r)
return { ACTED }

-- ARGV: how long to keep the answer in ms, state, answer
local r, none = get()
if not r then return none end
if not lives(r) or not (r.state == 'U' or r.state == 'P' and lapsed(r)) then return found(r) end
local now = clock()
settle_birth(r, now)
tend_graves(r, now)
r.state, r.answer, r.completed, r.expires = ARGV[2], ARGV[3], now, now + tonumber(ARGV[1])
finish_even_if_full()
put(r)
wake()
return { ACTED }

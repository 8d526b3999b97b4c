-- ARGV: token, how long to keep the answer in ms, state, answer, how long its claim asked for
local r, none = get()
if not r then return none end
if r.state ~= 'P' or r.token ~= ARGV[1] or not lives(r) then return found(r) end
local now = clock()
settle_birth(r, now)
tend_graves(r, now)
-- What an operator has added while it ran counts on.
local extra = math.max(0, r.tail - tonumber(ARGV[5]))
r.state, r.answer, r.completed, r.expires = ARGV[3], ARGV[4], now, now + ARGV[2] + extra
finish_even_if_full()
put(r)
wake()
return { ACTED, r.created, r.completed, r.expires }

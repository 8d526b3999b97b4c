-- ARGV: how long to keep the answer in ms (or longer, as the record would be), state, answer
local r, none = get()
if not r then return none end
if not lives(r) or not in_doubt(r) then return found(r) end
local now = clock()
-- How long nothing runs twice was promised with the claim.
local promised = record_end(r)
settle_birth(r, now)
tend_graves(r, now)
r.state, r.answer, r.completed = ARGV[2], ARGV[3], now
r.expires = math.max(now + tonumber(ARGV[1]), promised)
finish_even_if_full()
put(r)
wake()
return { ACTED }

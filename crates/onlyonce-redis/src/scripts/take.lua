-- A claim that the native one could not decide, or the whole claim where there is no native one.
-- ARGV: the value of a new claim, its lease in ms, whether a new record may be made
local claim, lease, may_make = cut(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
open(claim)
local now = clock()
local r, none = get()
if none and none[1] == FOUND then return none end
if r then
  tend_graves(r, now)
  if is_buried(r, claim.token) then return { DEAD } end
end

local function grant(granted, graves_of, overtook, age)
  granted.early, granted.expires = 0, now + lease + granted.tail
  if graves_of then
    granted.dead, granted.graves, granted.graved =
      graves_of.dead, graves_of.graves, graves_of.graved
  end
  if not may_make then finish_even_if_full() end
  put(granted)
  return { ACTED, granted.attempt, overtook, age }
end

-- Judged by the head as it was read: tending the graves may have moved the end of the key.
local was = r and cut(r.value)
if not r or not lives(was) then
  if not may_make then return { FULL } end
  claim.created = now
  return grant(claim, r)
end
if r.state == 'P' then
  settle_birth(r, now)
  if r.token == claim.token then return grant(r) end
  if lapsed(was) and r.rerun and claim.rerun and r.print == claim.print then
    claim.attempt, claim.created = math.min(r.attempt + 1, 4294967295), r.created
    local granted = grant(claim, r, r.meta, math.max(0, now - r.created))
    wake()
    return granted
  end
end
return found(was)

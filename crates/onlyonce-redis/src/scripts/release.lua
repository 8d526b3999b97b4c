-- ARGV: token, lease in ms, 'n' if nothing ran or 'u' if nobody knows
local token, now = ARGV[1], clock()
local dead_till, not_run = now + tonumber(ARGV[2]), ARGV[3] == 'n'
local r, none = get()
if none and none[1] == FOUND then return none end

-- Even a claim that has not arrived yet can be given back, but not as unknown.
if not r then
  r = { meta = '', answer = '', dead = '', graves = 0, graved = 0 }
  released(r)
end
if not lives(r) then
  if not_run then
    bury(r, token, dead_till, now)
    finish_even_if_full()
    clear(r)
  end
  return { ACTED }
end

local held = r.state == 'P' and r.token == token
if not held and not not_run then return found(r) end
settle_birth(r, now)
local kept_for = left(r)
r.expires = record_end(r)
-- A key without an end gets one again: what its claim was promised.
if kept_for == FOREVER then kept_for, r.expires = r.px, now + r.px end
local answer = held and { ACTED } or { FOUND, r.value, kept_for, r.expires }
bury(r, token, dead_till, now)
finish_even_if_full()
if not held then
  put(r)
-- Whose lapsed attempt it took over, that may have happened: it is not forgotten.
elseif not_run and r.attempt <= 1 then
  clear(r)
  wake()
else
  if r.rerun then
    r.early = math.max(0, kept_for - r.tail)
  else
    r.state = 'U'
  end
  put(r)
  wake()
end
return answer

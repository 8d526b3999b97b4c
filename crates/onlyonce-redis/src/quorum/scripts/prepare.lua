-- ARGV: ballot, whether to promise only if nothing was accepted
local ballot, only_if_new = ARGV[5], ARGV[6] == '1'
raise_floor()
local r = redis.call('HMGET', KEYS[1], 'p', 'b', 't')
local accepted = r[2]
if only_if_new and accepted then return seen(TOLD, r[1], accepted, r[3]) end
local promised = r[1] or end_of(floor)
if less(ballot, promised) then return { REFUSED, now, promised } end

redis.call('HSET', KEYS[1], 'p', ballot)
note_round(ballot)
note_vote()
if not accepted then
  redis.call('PEXPIRE', KEYS[1], PROMISE_KEPT)
else
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < PROMISED_KEPT_MIN then
    redis.call('PEXPIRE', KEYS[1], PROMISED_KEPT_MIN)
  end
end
return seen(VOTED, ballot, accepted, r[3])

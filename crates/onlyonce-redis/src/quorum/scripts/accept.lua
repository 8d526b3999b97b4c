-- ARGV: ballot, value, how long to keep it in ms or nothing, the ballot to promise with it or
-- nothing, whether to wake those who wait
local ballot, value, keep, after = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
raise_floor()
local r = redis.call('HMGET', KEYS[1], 'p', 'b')
if r[2] == ballot then return { VOTED, now } end
if r[1] ~= ballot then return { REFUSED, now, r[1] or '' } end

local promise = after ~= '' and after or ballot
redis.call('HSET', KEYS[1], 'p', promise, 'b', ballot, 'v', value, 't', digits(now))
note_round(promise)
note_vote()
if keep == '' then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], digits(math.max(tonumber(keep), PROMISED_KEPT_MIN)))
  local longest = tonumber(redis.call('HGET', KEYS[2], 'longest') or '0')
  if tonumber(keep) > longest then redis.call('HSET', KEYS[2], 'longest', keep) end
end
if ARGV[9] == '1' then redis.pcall('PUBLISH', KEYS[1], '') end
return { VOTED, now }

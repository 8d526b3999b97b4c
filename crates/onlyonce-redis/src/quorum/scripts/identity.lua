-- KEYS: the identity of this server. ARGV: what to do; then the place, the set of servers, the epoch
-- or a time, and what it needs besides: another number, and since when the server has waited.
local verb, seat, members, number, more = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function digits(n) return string.format('%.0f', n) end
local FOUND_WITHIN = 30000

local id = redis.call('HMGET', KEYS[1], 'seat', 'members', 'epoch', 'votes', 'joined', 'round')
local ours = id[1] == seat and id[2] == members

if verb == 'found' then
  -- Only right after all servers were seen without an identity.
  if not id[4] and math.abs(now - tonumber(number)) <= FOUND_WITHIN then
    redis.call('HSET', KEYS[1], 'seat', seat, 'members', members, 'epoch', '1',
      'votes', 'founding', 'joined', digits(now))
  end
elseif verb == 'seat' then
  if ours and id[4] == 'founding' then redis.call('HSET', KEYS[1], 'votes', 'yes') end
elseif verb == 'join' then
  if not id[4] then
    redis.call('HSET', KEYS[1], 'seat', seat, 'members', members, 'epoch', number,
      'votes', 'waiting', 'joined', digits(now))
  end
elseif verb == 'admit' then
  -- Only if it has lost nothing since it was seen to wait.
  if ours and id[3] == number and id[4] == 'waiting' and id[5] == ARGV[6] then
    local round = digits(math.max(tonumber(more), tonumber(id[6] or '0')))
    redis.call('HSET', KEYS[1], 'votes', 'yes', 'round', round, 'floor', round,
      'floor_at', digits(now))
  end
elseif verb == 'demote' then
  if ours and id[3] == number and id[4] == 'yes' then
    redis.call('HSET', KEYS[1], 'votes', 'waiting', 'joined', digits(now))
  end
elseif verb == 'raise' then
  -- `more` is the set of servers it may belong to so far.
  if id[1] == seat and (id[2] == more or id[2] == members) and id[4]
      and tonumber(id[3]) < tonumber(number) then
    redis.call('HSET', KEYS[1], 'members', members, 'epoch', number)
  end
end

id = redis.call('HMGET', KEYS[1],
  'seat', 'members', 'epoch', 'votes', 'joined', 'longest', 'round', 'cast')
return { now, id[1] or '', id[2] or '', id[3] or '0', id[4] or '', id[5] or '0', id[6] or '0',
  id[7] or '0', id[8] or '0' }

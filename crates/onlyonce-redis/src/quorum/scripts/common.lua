-- KEYS: the register, the identity of this server
-- ARGV: the server's place, the set of servers, the set's epoch, until when by this server's clock the
-- question counts; then what the script needs
local REFUSED, VOTED, TOLD, STRANGER, LATE = 0, 1, 2, 3, 4
local PROMISE_KEPT, PROMISED_KEPT_MIN, FLOOR_EVERY = 600000, 60000, 25000

local id = redis.call('HMGET', KEYS[2],
  'seat', 'members', 'epoch', 'votes', 'round', 'floor', 'floor_at', 'cast')
if id[1] ~= ARGV[1] or id[2] ~= ARGV[2] or id[3] ~= ARGV[3] or id[4] ~= 'yes' then
  return { STRANGER, id[1] or '', id[2] or '', id[3] or '', id[4] or '' }
end
local round_max, floor = tonumber(id[5] or '0'), tonumber(id[6] or '0')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if now > tonumber(ARGV[4]) then return { LATE, now } end

local function digits(number) return string.format('%.0f', number) end

-- Byte by byte: the order of strings depends on the server's language.
local function less(one, two)
  for i = 1, 16 do
    local a, b = string.byte(one, i), string.byte(two, i)
    if a ~= b then return a < b end
  end
  return false
end

local function round_of(ballot)
  local round = 0
  for i = 1, 6 do round = round * 256 + string.byte(ballot, i) end
  return round
end

-- Higher than every ballot of this round.
local function end_of(round)
  local bytes = {}
  for i = 6, 1, -1 do
    bytes[i] = string.char(round % 256)
    round = math.floor(round / 256)
  end
  return table.concat(bytes) .. string.rep('\255', 10)
end

-- What has vanished is always below the floor: it is raised more often than a register vanishes.
local function raise_floor()
  if math.abs(now - tonumber(id[7] or '0')) >= FLOOR_EVERY then
    floor = round_max
    redis.call('HSET', KEYS[2], 'floor', digits(floor), 'floor_at', digits(now))
  end
end

local function note_round(ballot)
  local round = round_of(ballot)
  if round > round_max then
    round_max = round
    redis.call('HSET', KEYS[2], 'round', digits(round))
  end
end

-- So that a server that went back to an older state of its own is noticed.
local function note_vote()
  redis.call('HSET', KEYS[2], 'cast', digits(tonumber(id[8] or '0') + 1))
end

-- What this server has: its time, the promise, the accepted ballot, how long ago, the value.
local function seen(kind, promised, accepted, since)
  if not accepted then return { kind, now, promised or '', '', 0, '' } end
  local value = redis.call('HGET', KEYS[1], 'v')
  return { kind, now, promised or '', accepted, math.max(0, now - tonumber(since)), value }
end

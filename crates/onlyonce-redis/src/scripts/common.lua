-- What all scripts share: a value's head is cut by position (see value.rs), and a lapse or an end
-- is judged by the key's own time to live, on this server's clock.
--
--   1 mark, 2   3 state   4 token, 16   20 fingerprint, 33   53 on_lapse
--   54 attempt, 4   then 8 each: 58 tail   66 early   74 px   82 created   90 completed
--   98 expires   106 graved   114 replays   122 length of the meta, 4   126 number of graves, 1
--   127 meta, answer, graves (token, 16, and deadline, 8)
local key = KEYS[1]
local MARK, HEAD, GRAVE, GRAVES_MAX = 'O1', 126, 24, 64
local NUMBERS = '>I4I8I8I8I8I8I8I8I8I4B'
local FOREVER = 157680000000000
local ABSENT, ACTED, FOUND, DEAD, FULL = 0, 1, 2, 3, 4

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The head of a value, or nil if it is none of ours.
local function cut(value)
  if #value < HEAD or value:sub(1, 2) ~= MARK then return nil end
  local r = { state = value:sub(3, 3), token = value:sub(4, 19), print = value:sub(20, 52),
    rerun = value:sub(53, 53) == 'r', who = value:sub(4, 53), value = value }
  r.attempt, r.tail, r.early, r.px, r.created, r.completed, r.expires, r.graved, r.replays,
    r.meta_bytes, r.graves = struct.unpack(NUMBERS, value, 54)
  return r
end

-- What is behind the head.
local function open(r)
  local value, dead = r.value, #r.value - r.graves * GRAVE
  r.meta = value:sub(HEAD + 1, HEAD + r.meta_bytes)
  r.answer = value:sub(HEAD + r.meta_bytes + 1, dead)
  r.dead = value:sub(dead + 1)
end

local function numbers(r)
  return struct.pack(NUMBERS, r.attempt, r.tail, r.early, r.px, r.created, r.completed, r.expires,
    r.graved, r.replays, #r.meta, r.graves)
end

-- When the record ends. A native claim cannot know; its key does.
local function record_end(r)
  if r.expires > 0 then return r.expires end
  return redis.call('PEXPIRETIME', key)
end

-- Nor can it know when it was made: that follows from when it ends.
local function settle_birth(r, now)
  if r.created > 0 then return end
  local ends = record_end(r)
  r.created = ends > 0 and ends - r.px or now
end

-- How long the record is still kept. Its key may outlive it, for the sake of its graves; a key
-- without an end has been meddled with, and is never taken for lapsed.
local function left(r)
  local p = redis.call('PTTL', key)
  if p < 0 then return FOREVER end
  return p - math.max(0, r.graved - r.expires)
end

local function lives(r)
  return r.state ~= 'R' and (r.graved <= r.expires or left(r) > 0)
end

local function lapsed(r)
  return left(r) <= r.tail + r.early
end

-- Whether its outcome is in doubt: what an operator may settle.
local function in_doubt(r)
  return r.state == 'U' or r.state == 'P' and lapsed(r)
end

-- Drops the graves that are due.
local function tend_graves(r, now)
  local kept, last = {}, 0
  for i = 1, #r.dead, GRAVE do
    local till = struct.unpack('>I8', r.dead, i + 16)
    if till > now then
      kept[#kept + 1] = r.dead:sub(i, i + GRAVE - 1)
      last = math.max(last, till)
    end
  end
  r.dead, r.graves, r.graved = table.concat(kept), #kept, last
end

-- Adds a grave, the newest last; beyond the bound the oldest goes. Buried twice, a token is dead
-- for the longer time.
local function bury(r, token, till, now)
  tend_graves(r, now)
  if till <= now then return end
  local kept = {}
  for i = 1, #r.dead, GRAVE do
    if r.dead:sub(i, i + 15) == token then
      till = math.max(till, (struct.unpack('>I8', r.dead, i + 16)))
    else
      kept[#kept + 1] = r.dead:sub(i, i + GRAVE - 1)
    end
  end
  if #kept >= GRAVES_MAX then table.remove(kept, 1) end
  kept[#kept + 1] = token .. struct.pack('>I8', till)
  r.dead, r.graves, r.graved = table.concat(kept), #kept, math.max(r.graved, till)
end

local function is_buried(r, token)
  for i = 1, #r.dead, GRAVE do
    if r.dead:sub(i, i + 15) == token then return true end
  end
  return false
end

-- Nothing but graves.
local function released(r)
  r.state, r.who, r.meta, r.answer = 'R', string.rep('\0', 50), '', ''
  r.attempt, r.tail, r.early, r.px, r.created, r.completed, r.expires, r.replays =
    0, 0, 0, 0, 0, 0, 0, 0
end

-- Where the dialect has no flag for it, a script may go on writing under OOM once a command that
-- writes has run. This one needs no memory, and changes nothing.
local function finish_even_if_full()
  if TOUCH then redis.call('GETEX', key) end
end

local function put(r)
  local ends = math.max(r.expires, r.graved)
  local value = MARK .. r.state .. r.who .. numbers(r) .. r.meta .. r.answer .. r.dead
  redis.call('SET', key, value, 'PXAT', ends)
end

-- Leaves the graves, if any, where a record was.
local function clear(r)
  if r.graves == 0 then return redis.call('DEL', key) end
  released(r)
  put(r)
end

-- Whoever may not publish still finishes: its waiters poll.
local function wake()
  redis.pcall(PUBLISH, key, '')
end

local function get()
  local value = redis.call('GET', key)
  if not value then return nil, { ABSENT } end
  local r = cut(value)
  -- Not ours: shown as it is, so that the asking side can say so.
  if not r then return nil, { FOUND, value, FOREVER, 0 } end
  open(r)
  return r
end

-- Since 7.2, WAIT waits for nothing but what its own connection wrote. What was read may have been
-- written by another a moment ago, so it is written once more, as it is: then it is waited for.
local function cover()
  if not COVER then return end
  finish_even_if_full()
  redis.call('SETRANGE', key, 0, MARK)
end

local function found(r)
  if not lives(r) then return { ABSENT } end
  cover()
  return { FOUND, r.value, left(r), record_end(r) }
end

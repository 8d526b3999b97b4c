-- ARGV: how many more replays. Setting a range keeps the time to live.
local r = cut(redis.call('GETRANGE', key, 0, HEAD - 1))
if not r or not lives(r) then return { ABSENT } end
local replays = math.min(r.replays + tonumber(ARGV[1]), 9007199254740991)
finish_even_if_full()
redis.call('SETRANGE', key, 113, struct.pack('>I8', replays))
return { ACTED, replays }

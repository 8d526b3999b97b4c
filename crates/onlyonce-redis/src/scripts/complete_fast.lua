-- Nearly every completion is of a live claim of its own token without graves: that is done before
-- anything else is set up, which would take twice as long as all of this.
local value = redis.call('GET', KEYS[1])
if value and #value >= 126 and value:sub(1, 3) == 'O1P' and value:sub(4, 19) == ARGV[1]
  and value:byte(126) == 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local tail, _, px, created = struct.unpack('>I8I8I8I8', value, 58)
  if created == 0 then
    local ends = redis.call('PEXPIRETIME', KEYS[1])
    created = ends > 0 and ends - px or now
  end
  local expires = now + ARGV[2] + math.max(0, tail - ARGV[5])
  if TOUCH then redis.call('GETEX', KEYS[1]) end
  redis.call('SET', KEYS[1], 'O1' .. ARGV[3] .. value:sub(4, 81)
    .. struct.pack('>I8I8I8', created, now, expires) .. value:sub(106) .. ARGV[4],
    'PXAT', expires)
  redis.pcall(PUBLISH, KEYS[1], '')
  return { 1, created, now, expires }
end

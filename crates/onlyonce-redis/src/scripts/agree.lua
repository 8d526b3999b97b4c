-- ARGV: what to keep if nothing is there yet; nothing to look only
local kept, offer = redis.call('GET', key), ARGV[1]
if kept then
  -- As `cover` does for a record.
  if COVER then
    finish_even_if_full()
    redis.call('SET', key, kept, 'KEEPTTL')
  end
  return kept
end
if not offer then return false end
finish_even_if_full()
redis.call('SET', key, offer)
return offer

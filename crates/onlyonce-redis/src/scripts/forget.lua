-- Whatever is in the way goes, also what cannot be read.
local value = redis.pcall('GET', key)
if not value then return { ABSENT } end
local r = type(value) == 'string' and cut(value)
if r and not lives(r) then return { ABSENT } end
if r then
  open(r)
  tend_graves(r, clock())
  finish_even_if_full()
  clear(r)
else
  redis.call('DEL', key)
end
wake()
return { ACTED }

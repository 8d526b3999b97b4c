-- Forgets what is in doubt, and nothing else.
local r, none = get()
if not r then return none end
if not lives(r) or not in_doubt(r) then return found(r) end
tend_graves(r, clock())
finish_even_if_full()
clear(r)
wake()
return { ACTED }

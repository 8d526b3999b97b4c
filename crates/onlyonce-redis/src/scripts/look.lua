local r, none = get()
if not r then return none end
return found(r)

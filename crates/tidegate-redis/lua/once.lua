-- A request with an id is carried out once; part of the long script.
--
-- What is remembered is what the id stands for, by which limits it was decided,
-- and the reply.
local once, meant
if known_for > 0 then
  local place = since and #KEYS - 1 or #KEYS
  once, meant = KEYS[place], ARGV[place]
  local known = call('GET', once)
  if known then
    if string.sub(known, 1, 16) ~= string.sub(meant, 1, 16) then
      error('TGREUSED the id stands for another request', 0)
    end
    return '=' .. string.sub(known, 17)
  end
end


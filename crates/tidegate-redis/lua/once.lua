-- A request with an id is carried out once, and what it charged can be corrected once;
-- part of the long script.
--
-- The argument of an id is what it stands for and by which limits it is decided, 16
-- letters each, and then a word for each check: the limit, 16 letters, and after a
-- colon the cost in units; or the limit and those that it replaced; - for what is no check.
--
-- What is remembered is the argument's first part, a space, the reply, and after a | what
-- each limit was charged: limit:cost:time. A request that is remembered gets its reply
-- again, after an = and its limits. To settle (purpose 1) or renew (2) is to correct those
-- charges; what was settled has the answer to that in their place, after an =.
local once, meant, reserved
local limits, charges = {}, {}
if known_for > 0 then
  local place = since and #KEYS - 1 or #KEYS
  once, meant = KEYS[place], ARGV[place]
  for word in string.gmatch(string.sub(meant, 33), '%S+') do
    limits[#limits + 1] = word
  end
  local known = call('GET', once)
  if known and purpose == 0 then
    if string.sub(known, 1, 16) ~= string.sub(meant, 1, 16) then
      error('TGREUSED the id stands for another request', 0)
    end
    return '=' .. string.match(string.sub(known, 17), '^[^|]*')
  elseif purpose > 0 then
    local charged
    reserved, charged = string.match(known or '', '^([^|]*)|(.*)$')
    if not reserved then
      error('TGOVER there is no such reservation', 0)
    elseif string.sub(charged, 1, 1) == '=' then
      return charged
    end
    for limit, cost, at in string.gmatch(charged, '(%x+):(%d+):(%d+)') do
      charges[limit] = { tonumber(cost), tonumber(at) }
    end
  end
end

-- The charge that a check is to correct, if there is one, and its limit.
local function charge_of(index)
  for limit in string.gmatch(limits[index] or '', '%x+') do
    if charges[limit] then
      return charges[limit], limit
    end
  end
end

-- Notes when a charge counts as made, if it is carried out, and says what to answer: the
-- state, and with it the charge that was corrected.
local function note(index, noted, state, is_carried_out)
  local kind, verb, moment, charge, corrected = unpack(noted)
  if is_carried_out and (verb == CHARGE or verb == RENEW) then
    local at = moment
    if kind == 108 then -- l
      at = tonumber(string.match(state, '^%d+'))
    elseif kind ~= 98 and kind ~= 119 then -- c, d
      at = now + (tonumber(string.match(state or '', ':(%d+)$')) or 0)
      charge = purpose == 2 and charge_of(index)
    end
    at = at > now and at or now
    local limit, cost = string.match(limits[index] or '', '^(%x+):(%d+)$')
    if purpose == 0 and limit then
      charges[limit] = { tonumber(cost), at }
    elseif purpose == 2 and charge then
      charge[2] = at
    end
  end
  return corrected and (state or '-') .. corrected or state
end

-- What is remembered of the request when it is carried out.
local function remember(reply)
  if purpose == 1 then
    call('SET', once, reserved .. '|=' .. string.sub(meant, 17, 32) .. ' ' .. reply, 'KEEPTTL')
    return
  end
  local charged = {}
  for limit, charge in pairs(charges) do
    charged[#charged + 1] = string.format('%s:%d:%d', limit, charge[1], charge[2])
  end
  local kept = purpose == 2 and reserved or string.sub(meant, 1, 32) .. ' ' .. reply
  call('SET', once, kept .. '|' .. table.concat(charged, ' '), 'PX', known_for)
end


-- A request with an id is carried out once, and what it charged can be corrected once;
-- part of the long script.
--
-- The argument of an id is what it stands for and by which limits it is decided, 16
-- letters each, and then a word for each key: its state, 16 letters, and after a colon the
-- cost in units, if it is charged; - for what is neither charged nor corrected. To correct, after
-- commas, the states of former limits that are forgotten.
--
-- What is remembered is the argument's first part, a space, the reply, and after a | for
-- how many milliseconds, and what each state was charged: state:cost:time. A request that
-- is remembered gets its reply again, after an = and its limits. To settle (purpose 1) or
-- renew (2) is to correct those charges; what was settled has the answer to that in their
-- place, after an =.
local once, stands_for, reserved
local states, lapsed, charges = {}, {}, {}
if known_for > 0 then
  local place = since and #KEYS - 1 or #KEYS
  local words
  once = KEYS[place]
  stands_for, words = string.match(ARGV[place], '^(%x+) (.*)$')
  for word in string.gmatch(words, '%S+') do
    local number = #states + 1
    states[number], lapsed[number] = string.match(word, '^([^,]*)(.*)$')
  end
  local known = call('GET', once)
  if purpose > 0 then
    local charged
    reserved, charged = string.match(known or '', '^([^|]*)|(.*)$')
    if not reserved then
      error('TGOVER there is no such reservation', 0)
    elseif string.byte(charged) == 61 then -- =
      return charged
    end
    known_for = string.match(charged, '^%d+')
    for of, cost, at in string.gmatch(charged, '(%x+):(%d+):(%d+)') do
      charges[of] = { tonumber(cost), tonumber(at) }
    end
  elseif known then
    if string.sub(known, 1, 16) ~= string.sub(stands_for, 1, 16) then
      error('TGREUSED the id stands for another request', 0)
    end
    return '=' .. string.match(string.sub(known, 17), '^[^|]*')
  end
end

-- What was charged to a limit that is forgotten.
local function forgotten_charge(index)
  for of in string.gmatch(lapsed[index] or '', '%x+') do
    if charges[of] then
      return charges[of]
    end
  end
end

-- Notes when a charge counts as made.
local function note(index, moment, charge)
  local at = moment and moment > now and moment or now
  local of, cost = string.match(states[index] or '', '^(%x+):(%d+)$')
  if of then
    charges[of] = { tonumber(cost), at }
  elseif charge then
    charge[2] = at
  end
end

-- What is remembered of the request when it is carried out.
local function remember(reply)
  if purpose == 1 then
    call('SET', once, reserved .. '|=' .. string.sub(stands_for, 17) .. ' ' .. reply, 'KEEPTTL')
    return
  end
  local charged = { string.format('%d', known_for) }
  for of, charge in pairs(charges) do
    charged[#charged + 1] = string.format('%s:%d:%d', of, charge[1], charge[2])
  end
  local record = reserved or stands_for .. ' ' .. reply
  call('SET', once, record .. '|' .. table.concat(charged, ' '), 'PX', known_for)
end


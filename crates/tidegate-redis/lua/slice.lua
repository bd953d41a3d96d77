-- Every check of the slice: first all are decided, then all are carried out.

local outcome = withheld == 1 and ' 0' or ' 1'
local slice = since and #KEYS - 1 or #KEYS
--[[long]] slice = once and slice - 1 or slice
local plans = slice > 1 and {}
local passes, state -- what a kernel says,
local write, value, lasts -- and what it wants written if all pass
--[[long]] local moment -- when a charge counts as made, if that is not now
--[[long]] local withhold -- or if not
--[[long]] local noted = {}

for index = 1, slice do
  local key, spec = KEYS[index], ARGV[index]
  local kind, verb, cost, n2, n3, n4, n5 = unpack_numbers('<BBddddd', spec)
  write, value, lasts = nil, nil, nil
--[[long]] moment = nil
  local kept_back = 0
  if verb > 96 then -- a small letter
    verb, kept_back = verb - 32, tonumber(string.sub(spec, 43))
  end
  local undone, kept
  if verb == UNDO then
    undone, kept = string.match(spec, '^(%d+):(%d+)', 43)
  end
--[[long]] local charge, is_replaced
--[[long]] if once then
--[[long]]   charge, is_replaced = charge_of(index)
--[[long]] end
--[[long]] local actual
--[[long]] if verb == SETTLE then
--[[long]]   local ceiling, unit
--[[long]]   ceiling, unit, actual = string.match(spec, '^(%d+):(%d+):(%d+)', 43)
--[[long]]   local more = (actual - (charge and charge[1] or actual)) * unit
--[[long]]   if more > 0 then
--[[long]]     verb, cost, spec = REPORT, math.min(more, cost), string.rep('-', 42) .. ceiling
--[[long]]   else
--[[long]]     outcome = more < 0 and is_replaced and ' 2' or outcome
--[[long]]     verb, cost, kept, undone = UNDO, -more, actual * unit, charge and charge[2]
--[[long]]   end
--[[long]] elseif verb == RENEW then
--[[long]]   undone = tonumber(string.sub(spec, 43))
--[[long]]   if charge then
--[[long]]     cost, undone, actual = charge[1], charge[2], charge[1]
--[[long]]   end
--[[long]] end
--[[long]] local gives_back = verb == RESET or (verb == REFUND or verb == UNDO) and cost > 0
  if kind == 98 then -- b
--[[bucket]]
  elseif kind == 119 then -- w
--[[window]]
--[[long]] elseif kind == 108 then -- l
--[[long]]   passes, state, value = log(key, verb, cost, n2, n3, n4, undone, kept_back)
--[[long]]   write = value and 'CALL'
--[[long]] elseif kind == 97 then -- a
--[[long]]   passes, state = call('EXISTS', key) == 0, nil
--[[long]]   if not passes then
--[[long]]     outcome = ' 2'
--[[long]]   end
--[[long]] elseif kind == 109 then -- m
--[[long]]   local of, lasts_for, text = plans[cost], n2, string.sub(spec, 43)
--[[long]]   local from, to, unmarks = n3, n4, n5 == 1
--[[long]]   if verb == CHARGE then
--[[long]]     from, to, unmarks = of.used_before, of.used_after, of.gives_back
--[[long]]   end
--[[long]]   passes, state, write = true, nil, 'CALL'
--[[long]]   value = function() return tell(key, text, lasts_for, from, to, unmarks) end
--[[long]] else -- c, d
--[[long]]   local is_known
--[[long]]   passes, state, value, withhold, is_known = custom(key, kind == 100, spec, verb, cost, n2, n3, n4, n5)
--[[long]]   write, verb = 'CALL', CHARGE
--[[long]]   if not is_known then
--[[long]]     outcome = ' 2'
--[[long]]   end
  end
  if not passes and verb ~= PEEK and outcome == ' 1' then
    outcome = ' 0'
  end
--[[long]] if once then
--[[long]]   local corrected = actual and charge and string.format('/%d:%d:', charge[2], charge[1]) .. actual
--[[long]]   noted[index] = { corrected, charge, moment }
--[[long]] end
  if plans then
    plans[index] = { passes, state, write, value, lasts }
--[[long]]   plans[index].withhold, withhold = withhold, nil
--[[long]]   plans[index].used_before, plans[index].used_after = used_before, verb == RESET and 0 or used_after
--[[long]]   plans[index].gives_back = gives_back
  end
end

local answers = ''
for index = 1, slice do
  local key = KEYS[index]
  if plans then
    local plan = plans[index]
    passes, state, write, value, lasts = plan[1], plan[2], plan[3], plan[4], plan[5]
--[[long]] withhold = plan.withhold
  end
--[[long]] moment = once and noted[index][3]
  if write and outcome == ' 1' then
    if write == 'INCRBY' then
      call('INCRBY', key, value)
    elseif write == 'DEL' then
      call('DEL', key)
--[[long]] elseif write == 'CALL' then
--[[long]]   state, moment = value()
    elseif lasts then
      call('SET', key, value, 'PX', -floor((now - lasts) / 1000) + kept_longer)
    else
      call('SET', key, value, 'KEEPTTL')
    end
--[[long]] elseif withhold and outcome == ' 0' then
--[[long]]   withhold()
  end
--[[long]] if once then
--[[long]]   local corrected = noted[index][1]
--[[long]]   state = corrected and (state or '') .. corrected or state
--[[long]]   note(index, moment, noted[index][2])
--[[long]] end
--[[short]] if slice == 1 then
--[[long]] if slice == 1 and not once then
    return seconds .. ' ' .. microseconds .. outcome .. (passes and ' 1 ' or ' 0 ') .. (state or '-')
  end
  answers = answers .. (passes and ' 1 ' or ' 0 ') .. (state or '-')
end
--[[long]] if once and outcome == ' 1' then
--[[long]]   remember(seconds .. ' ' .. microseconds .. outcome .. answers)
--[[long]] end
return seconds .. ' ' .. microseconds .. outcome .. answers

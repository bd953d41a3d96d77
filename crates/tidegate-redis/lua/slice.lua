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
--[[long]] local checks, order = in_order(slice)

for turn = 1, slice do
--[[short]] local index = turn
--[[long]] local index = order and order[turn] or turn
  local key, spec = KEYS[index], ARGV[index]
  local kind, verb, cost, n2, n3, n4, n5 = unpack_numbers('<BBddddd', spec)
  write, value, lasts = nil, nil, nil
--[[long]] moment = nil
--[[long]] local beside, unit, most, forgotten, queues, used_at, counted, ends, ends_after
--[[long]] if order then
--[[long]]   kind, spec, beside, unit, most, forgotten, queues = split(index, kind, spec)
--[[long]]   if beside and verb == REFUND and index > checks then
--[[long]]     cost = beside.carry * unit
--[[long]]   end
--[[long]] end
  local kept_back = 0
  if verb > 96 then -- a small letter
    verb, kept_back = verb - 32, tonumber(string.sub(spec, 43))
  end
--[[long]] local class = kept_back
--[[long]] if beside and index <= checks and (verb == CHARGE or verb == PEEK) then
--[[long]]   kept_back = kept_back + beside.used * unit
--[[long]] end
  local undone, kept
  if verb == UNDO then
    undone, kept = string.match(spec, '^(%d+):(%d+)', 43)
  end
--[[long]] local charge = once and charges[states[index]]
--[[long]] local actual
--[[long]] if verb == SETTLE then
--[[long]]   local ceiling, scale
--[[long]]   ceiling, scale, actual = string.match(spec, '^(%d+):(%d+):(%d+)', 43)
--[[long]]   local is_former = order and index > checks
--[[long]]   local elsewhere = not charge and not is_former and (forgotten_charge(index) or beside and beside.charge)
--[[long]]   if elsewhere and actual - elsewhere[1] > 0 then
--[[long]]     -- What was used beyond the charge is used now, and of the limit in force.
--[[long]]     charge = elsewhere
--[[long]]   end
--[[long]]   local more = (actual - (charge and charge[1] or actual)) * scale
--[[long]]   if is_former then
--[[long]]     beside.charge = charge or beside.charge
--[[long]]   end
--[[long]]   if more > 0 and not is_former then
--[[long]]     verb, cost, spec = REPORT, math.min(more, cost), string.rep('-', 42) .. ceiling
--[[long]]   else
--[[long]]     verb, cost, kept, undone = UNDO, math.max(0, -more), actual * scale, charge and charge[2]
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
--[[long]]   passes, state, used_at, value = log(key, verb, cost, n2, n3, n4, undone, kept_back)
--[[long]]   write, counted = value and 'CALL', verb == RESET and 0 or used_after
--[[long]] elseif kind == 109 then -- m
--[[long]]   local of, lasts_for, text = plans[cost], n2, string.sub(spec, 43)
--[[long]]   local by_client = verb ~= CHARGE
--[[long]]   passes, state, write = true, nil, 'CALL'
--[[long]]   value = function()
--[[long]]     if by_client then
--[[long]]       return tell(key, text, lasts_for, n3, n4, n5 == 1)
--[[long]]     end
--[[long]]     local used, after = 0, 0
--[[long]]     if of.beside then
--[[long]]       used, after = of.beside.used * of.part, of.beside.after * of.part
--[[long]]     end
--[[long]]     return tell(key, text, lasts_for, of.used_before + used, of.used_after + after, of.gives_back)
--[[long]]   end
--[[long]] else -- c, d
--[[long]]   local is_known
--[[long]]   passes, state, value, withhold, is_known = custom(key, kind == 100, spec, verb, cost, n2, n3, n4, n5)
--[[long]]   write, verb = 'CALL', CHARGE
--[[long]]   if not is_known then
--[[long]]     outcome = ' 2'
--[[long]]   end
  end
--[[long]] local part = kind == 119 and n5 == 2 and n3 or unit -- of what `used` is in
--[[long]] if beside and index > checks then
--[[long]]   -- A former limit refuses no charge. It is forgotten one day: what is renewed there has to end before.
--[[long]]   passes = verb ~= RENEW or cost == 0 or (passes and now + n3 <= forgotten)
--[[long]]   local used = used_at(now)
--[[long]]   beside.counts[#beside.counts + 1] = used_at
--[[long]]   beside.used, beside.after = beside.used + used, beside.after + counted
--[[long]]   beside.carry = math.max(0, beside.carry - used)
--[[long]]   beside.gives_back = beside.gives_back or gives_back
--[[long]] elseif beside then
--[[long]]   gives_back = gives_back or beside.gives_back
--[[long]]   beside.carry = math.max(0, cost / unit - used_at(now))
--[[long]]   if not passes and (verb == CHARGE or verb == PEEK) then
--[[long]]     local whole = kind == 98 and n2 or n2 * unit
--[[long]]     beside.frees = first_time(beside, used_at, (whole - cost - class) / unit)
--[[long]]   end
--[[long]] end
--[[long]] local lost = verb == RENEW and once and forgotten_charge(index)
--[[long]] if lost and lost[1] > 0 then
--[[long]]   passes = false
--[[long]] end
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
--[[long]]   local plan = plans[index]
--[[long]]   plan.beside, plan.part, plan.ends, plan.ends_after = beside, part, ends, ends_after
--[[long]]   plan.queues, plan.period = queues == 1, kind == 108 and n3
  end
end

local answers = {}
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
--[[long]] local former = order and index > checks and plans[index]
--[[long]] if former then
--[[long]]   local beside, ends = former.beside, outcome == ' 1' and former.ends_after or former.ends
--[[long]]   ends = former.period and string.match(state, '^%d+') + former.period or ends
--[[long]]   beside.ends = math.max(beside.ends, ends)
--[[long]]   beside.queue = former.queues and math.max(beside.queue, ends) or beside.queue
--[[long]]   beside.refuses = beside.refuses or not passes
--[[long]]   if noted[index] and noted[index][2] then
--[[long]]     beside.moment = moment or 0
--[[long]]   end
--[[long]] else
  answers[index] = (passes and ' 1 ' or ' 0 ') .. (state or '-')
--[[long]] end
end
--[[long]] for place, beside in pairs(besides) do
--[[long]]   local answer = beside.refuses and ' 0' .. string.sub(answers[place], 3) or answers[place]
--[[long]]   answers[place] = answer .. answer_beside(beside, outcome == ' 1')
--[[long]] end
answers = table.concat(answers)
--[[long]] if once and outcome == ' 1' then
--[[long]]   remember(seconds .. ' ' .. microseconds .. outcome .. answers)
--[[long]] end
return seconds .. ' ' .. microseconds .. outcome .. answers

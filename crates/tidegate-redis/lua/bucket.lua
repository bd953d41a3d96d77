    -- Token bucket and leaky bucket: the state is when the bucket will be empty,
    -- in ticks and, where a tick drains more than one, a fraction of a tick.
    local full, drain, size, reach = n2, n3, n4, n5
    local tick = size == 1 and now or floor(now / size)
    local horizon = drain == 1 and full or -floor(-full / drain)
    local at, fraction = 0, 0
    state = call('GET', key)
    if state then
      at = tonumber(state)
      if not at then
        at, fraction = string.match(state, '^(%d+):(%d+)$')
        at, fraction = tonumber(at), tonumber(fraction)
      end
      if not (at and fraction and at >= 0 and at < EXACT and at % 1 == 0 and fraction < drain) then
        error(FOREIGN, 0)
      end
    end
    local stored = at

    if since then
      local full_until = floor(since / size) + floor(full / drain)
      if at < full_until or (at == full_until and fraction < full % drain) then
        at, fraction = full_until, full % drain
        state = string.format('%d:%d', at, fraction)
      end
    end
    if at > tick + horizon then
      local grace = -floor(-MIN_GRACE / size)
      if at > tick + reach + (horizon > grace and horizon or grace) then
        at, fraction = tick + floor(full / drain), full % drain
        if verb == RESET or (verb ~= PEEK and cost > 0) then
          local healed = string.format(fraction > 0 and '%d:%d' or '%d', at, fraction)
          call('SET', key, healed, 'PX', -floor((now - (at + horizon) * size) / 1000) + kept_longer)
        end
      end
    end

    -- A level above full, which debt or a clock that went back leaves, has no room.
    local level = 0
    if at >= tick then
      level = at - tick > horizon and EXACT or (at - tick) * drain + fraction
    end
--[[long]] used_before = level
--[[long]] if unit then
--[[long]]   local full_until, part = at, fraction
--[[long]]   ends = (fraction > 0 and at + 1 or at) * size
--[[long]]   used_at = function(time)
--[[long]]     local ahead = full_until - floor(time / size)
--[[long]]     if ahead < 0 then
--[[long]]       return 0
--[[long]]     end
--[[long]]     return -floor(-(ahead > reach and most or math.min(ahead * drain + part, most)) / unit)
--[[long]]   end
--[[long]] end
    local moves = false
    if verb == CHARGE or verb == PEEK then
      passes = level + cost + kept_back <= full
      if verb == CHARGE and cost > 0 then
        moves, level = true, level + cost
      end
    elseif verb == RESET then
      passes, write = true, 'DEL'
    elseif verb == RENEW then
      passes = cost == 0
    elseif verb == REPORT then
      passes = true
      local ceiling = tonumber(string.sub(spec, 43))
      if level == EXACT then
        level = at - tick > reach and ceiling or (at - tick) * drain + fraction
--[[long]] used_before = level
      end
      if cost > 0 and level < ceiling then
        moves, level = true, level + cost < ceiling and level + cost or ceiling
      end
    else
      passes = true
      if undone then
        -- What has drained away since then, and is not what is kept, cannot be given back.
        local gone = (tick - floor(undone / size)) * drain - kept
        cost = cost - (gone > 0 and gone or 0)
      end
      if cost > 0 and at >= tick then
        -- By the state and not by the level, which may be beyond counting.
        local whole, part = floor(cost / drain), cost % drain
        if part > fraction then
          whole, fraction = whole + 1, fraction + drain
        end
        at, fraction = at - whole, fraction - part
        level = at < tick and 0 or nil
        moves = true
      end
    end
    if moves and passes then
      if level and drain == 1 then
        at = tick + level
      elseif level then
        at, fraction = tick + floor(level / drain), level % drain
      end
      -- The expiry is set for a cell of time as long as the horizon, and
      -- holds while the state stays within the cell.
      local cell = at - at % horizon
      local same_cell = state and cell == stored - stored % horizon
      if same_cell and drain == 1 then
        -- Mostly it moves by the cost, which is at hand as text.
        local is_text = at - stored == cost and verb == CHARGE and kept_back == 0
        write, value = 'INCRBY', is_text and string.sub(spec, 43) or at - stored
      else
        write, value = 'SET', string.format(fraction > 0 and '%d:%d' or '%d', at, fraction)
        lasts = not same_cell and (cell + 2 * horizon) * size
      end
    end
--[[long]] used_after = (at - tick) * drain + fraction
--[[long]] if unit then
--[[long]]   counted = verb == RESET and 0 or at < tick and 0 or -floor(-math.min(used_after, most) / unit)
--[[long]]   ends_after = verb == RESET and 0 or (fraction > 0 and at + 1 or at) * size
--[[long]] end

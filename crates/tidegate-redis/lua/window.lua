    -- Fixed window and sliding window counter: the state is when the latest
    -- window began, what was charged in it, and what in the one before.
    local count, period, size, style = n2, n3, n4, n5
    local given -- where the window began, if it is a period of the calendar
    if style == 3 then
      if now < n3 or now >= n4 then
        return seconds .. ' ' .. microseconds .. ' 3'
      end
      given, period, size = n3, n4 - n3, 1
    end
    local tick = size == 1 and now or floor(now / size)
    local sliding, from_first = style == 2, style == 1
    local horizon = sliding and 2 * period or period
    local start, current, previous = 0, 0, 0
    state = call('GET', key)
    if state then
      start, current, previous = string.match(state, '^(%d+):(%d+):(%d+)$')
      start, current, previous = tonumber(start), tonumber(current), tonumber(previous)
      -- A fixed window of another count may have charged the same state, and debt is above the count:
      -- the bound is what can be counted exactly.
      local weight = start and (previous > count and EXACT or current)
      weight = start and sliding and (current + previous + count) * period or weight
      if not (start and start < EXACT and weight < EXACT) then
        error(FOREIGN, 0)
      end
    end
    local stored = state and start

    if since and (not given or since >= given) then
      local first = floor(since / size)
      first = from_first and first or given or first - first % period
      if tick < first + horizon then
        if start == first then
          current = current > count and current or count
        elseif start < first or (from_first and start < first + period) then
          start, current, previous = first, count, 0
        elseif sliding and start == first + period then
          previous = previous > count and previous or count
        end
        state = string.format('%d:%d:%d', start, current, previous)
      end
    end
    if start > tick then
      local grace = -floor(-MIN_GRACE / size)
      if start > tick + (horizon > grace and horizon or grace) then
        start, current, previous = from_first and tick or given or tick - tick % period, count, 0
        if verb == RESET or (verb ~= PEEK and cost > 0) then
          local healed = string.format('%d:%d:%d', start, current, previous)
          call('SET', key, healed, 'PX', -floor((now - (start + horizon) * size) / 1000) + kept_longer)
        end
      end
    end

--[[long]] if unit then
--[[long]]   local first, latest, earlier = start, current, previous
--[[long]]   ends = latest + earlier > 0 and (first + period) * size or 0
--[[long]]   if sliding and latest + earlier > 0 then
--[[long]]     -- No whole unit counts from then on.
--[[long]]     local last = latest > 0 and first + horizon or first + period
--[[long]]     ends = (last - floor((period - 1) / (latest > 0 and latest or earlier))) * size
--[[long]]   end
--[[long]]   used_at = function(time)
--[[long]]     local later = floor(time / size)
--[[long]]     local age = later > first and later - first or 0
--[[long]]     if given and (first < given or (first < n4 and time >= n4)) then
--[[long]]       return 0
--[[long]]     elseif given or age < period then
--[[long]]       return (sliding and floor(earlier * (period - age) / period) or 0) + latest
--[[long]]     end
--[[long]]     return sliding and age < 2 * period and floor(latest * (period - later % period) / period) or 0
--[[long]]   end
--[[long]] end
    -- The state brought up to now; a clock behind it finds it just begun.
    local elapsed = tick > start and tick - start or 0
    if (current == 0 and previous == 0) or (given and start < given) or elapsed >= period then
      previous = sliding and elapsed < 2 * period and current or 0
      start, current = from_first and tick or given or tick - tick % period, 0
      elapsed = tick - start
    end

--[[long]] used_before = sliding and previous * (period - elapsed) + current * period or current
    local moves = false
    if verb == CHARGE or verb == PEEK then
      if sliding then
        passes = previous * (period - elapsed) + (current + cost) * period < (count - kept_back + 1) * period
      else
        passes = current + cost + kept_back <= count
      end
      if verb == CHARGE and cost > 0 then
        moves, current = true, current + cost
      end
    elseif verb == RESET then
      passes, write = true, 'DEL'
    elseif verb == RENEW then
      passes = cost == 0
    elseif verb == REPORT then
      local room = string.sub(spec, 43) - current
      local added = cost < room and cost or room
      passes, moves = true, added > 0
      current = moves and current + added or current
    else
      passes, moves = true, cost > 0
      local from_current, from_previous = cost < current and cost or current, 0
      if verb == REFUND then
        local left = cost - from_current
        from_previous = left < previous and left or previous
      elseif moves then
        -- Only what was charged to a window is taken from it.
        local charged = floor(undone / size)
        if charged < start then
          from_current = 0
          if charged >= start - period then
            from_previous = cost < previous and cost or previous
          end
        end
      end
      current, previous = current - from_current, previous - from_previous
    end
--[[long]] used_after = sliding and previous * (period - elapsed) + current * period or current
--[[long]] if unit then
--[[long]]   counted = verb == RESET and 0 or sliding and floor(used_after / period) or used_after
--[[long]]   ends_after = (verb == RESET or current + previous == 0) and 0 or (start + period) * size
--[[long]]   if sliding and ends_after > 0 then
--[[long]]     local last = current > 0 and start + horizon or start + period
--[[long]]     ends_after = (last - floor((period - 1) / (current > 0 and current or previous))) * size
--[[long]]   end
--[[long]] end
    if moves and passes then
--[[long]] moment = start * size
      if current == 0 and previous == 0 then
        write, value = 'DEL', nil
      else
        write, value = 'SET', string.format('%d:%d:%d', start, current, previous)
        lasts = start ~= stored and (start + horizon) * size
      end
    end

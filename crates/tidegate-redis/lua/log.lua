-- The kernel of the sliding window log; part of the long script.
--
-- Returns whether the check passes, what to answer if nothing is carried out, what will be
-- used at a time if it is not, and how to carry it out: a function that answers in its place,
-- and says when a charge counts as made; or nothing.
--
-- A log is a list: what was charged before its first entry, then for each
-- entry its time and what had been charged after it, modulo SUMS. Both rise,
-- so an entry is found by halving; dropping the oldest leaves such a list.
local SUMS = EXACT / 2

-- What is used before the latest check, and after it if it is carried out: of a log in units,
-- of a bucket and a window in parts of them. For thresholds.
local used_before, used_after

local function integer(text)
  local number = tonumber(text)
  if number and number >= 0 and number < EXACT and number % 1 == 0 then
    return number
  end
  error(FOREIGN, 0)
end

local log
function log(key, verb, cost, count, period, ceiling, undone, kept_back)
  local length = call('LLEN', key)
  local entries = length > 0 and (length - 1) / 2 or 0
  local only -- the time of the only entry, of all the count, if it stands in for the list

  local function at(entry)
    return only or integer(call('LINDEX', key, 2 * entry - 1))
  end
  local function sum(entry)
    if only then
      return entry * count
    end
    return integer(call('LINDEX', key, 2 * entry))
  end
  -- The expiry is set for a cell of time as long as the period, and holds
  -- while the newest entry stays within the cell.
  local function expire(from, to)
    local cell = to - to % period
    if not from or from - from % period ~= cell then
      call('PEXPIRE', key, -floor((now - cell - 2 * period) / 1000) + kept_longer)
    end
  end

  local function push(where, values)
    for from = 1, #values, 500 do
      call(where, key, unpack(values, from, math.min(from + 499, #values)))
    end
  end

  if length > 0 and (entries < 1 or entries % 1 ~= 0) then
    integer(nil)
  end
  local newest = entries > 0 and at(entries) or 0
  if newest > now + (period > MIN_GRACE and period or MIN_GRACE) then
    entries, newest = 1, now
    if verb == RESET or (verb ~= PEEK and cost > 0) then
      call('DEL', key)
      call('RPUSH', key, 0, now, count)
      expire(nil, now)
    else
      only = now
    end
  end
  -- Unless a report has written so.
  local is_written = since and entries > 0 and at(1) == since and (sum(1) - sum(0)) % SUMS >= count
  if since and now < since + period and not is_written then
    entries, newest, only = 1, since, since
  end
  local time = newest > now and newest or now

  -- The first entry after `after` of which `holds` is true, if any.
  local function first(after, holds)
    if after == entries or holds(after + 1) then
      return after + 1
    end
    local low, high = after + 1, entries + 1
    while high - low > 1 do
      local middle = floor((low + high) / 2)
      if holds(middle) then
        high = middle
      else
        low = middle
      end
    end
    return high
  end

  local expired = first(0, function(entry) return at(entry) + period > time end) - 1
  local before = entries > 0 and sum(expired) or 0
  local used = entries > 0 and (sum(entries) - before) % SUMS or 0
  used_before, used_after = used, used
  local function used_at(when)
    when = newest > when and newest or when
    local gone = entries > 0 and first(expired, function(entry) return at(entry) + period > when end) - 1
    return gone and (sum(entries) - sum(gone)) % SUMS or 0
  end

  local function answer(last, left, frees)
    return string.format('%d:%d:%d', last, left, frees)
  end
  local passes, unchanged = true, nil
  if verb == CHARGE or verb == PEEK then
    local excess = used + cost + kept_back - count
    passes = excess <= 0
    if not passes then
      local freeing = first(expired, function(entry) return (sum(entry) - before) % SUMS >= excess end)
      -- What former limits count may be too much without any entry.
      unchanged = answer(newest, used, freeing <= entries and at(freeing) + period or 0)
    end
  end
  unchanged = unchanged or answer(newest, used, 0)

  if verb == RESET then
    return true, unchanged, used_at, function()
      call('DEL', key)
      return answer(0, 0, 0)
    end
  elseif verb == PEEK or cost == 0 then
    return passes, unchanged, used_at
  elseif verb == CHARGE or verb == REPORT then
    local asked = cost
    if verb == REPORT then
      local room = ceiling - used
      cost = cost < room and cost or room > 0 and room or 0
      if cost == 0 then
        return true, answer(newest, used, asked), used_at
      end
    end
    used_after = used + cost
    return passes, unchanged, used_at, function()
      if only then
        call('DEL', key)
        call('RPUSH', key, 0, only, count)
      end
      local total = (before + used + cost) % SUMS
      if expired > 0 then
        call('LTRIM', key, 2 * expired, -1)
      end
      if entries == 0 then
        call('RPUSH', key, 0, time, cost)
      elseif newest == time then
        call('LSET', key, -1, total)
      else
        call('RPUSH', key, time, total)
      end
      expire(not only and entries > 0 and newest, time)
      return answer(time, used + cost, asked - cost), time
    end
  end
  local ours, size
  if verb == UNDO or verb == RENEW then
    -- An entry of another time is none of ours, and one that has expired is gone.
    undone = tonumber(undone)
    ours = not only and first(expired, function(entry) return at(entry) >= undone end)
    if not ours or ours > entries or at(ours) ~= undone then
      return verb == UNDO, unchanged, used_at
    end
    size = (sum(ours) - sum(ours - 1)) % SUMS
    if verb == RENEW and size < cost then
      return false, unchanged, used_at
    end
  end
  if not only and verb ~= RENEW then
    local taken = size and size < cost and size or cost
    used_after = taken < used and used - taken or 0
  end
  return true, unchanged, used_at, not only and function()
    if verb == REFUND then
      local left = used - cost
      if left <= 0 then
        call('DEL', key)
        return answer(0, 0, 0)
      end
      local last = first(expired, function(entry) return (sum(entry) - before) % SUMS >= left end)
      local last_at = at(last)
      call('LTRIM', key, 2 * expired, 2 * last)
      call('LSET', key, -1, (before + left) % SUMS)
      return answer(last_at, left, 0)
    end
    local taken = cost < size and cost or size
    local gone, head, tail = taken == size, ours - expired - 1, entries - ours
    local last_at = tail > 0 and newest or not gone and undone or head > 0 and at(ours - 1) or 0
    if used == taken then
      call('DEL', key)
    elseif head < tail then
      -- Only differences count: what comes before ours rises by what ours loses.
      local kept = call('LRANGE', key, 2 * expired, 2 * ours - 2)
      call('LTRIM', key, gone and 2 * ours + 1 or 2 * ours - 1, -1)
      local turned = {}
      for place, value in ipairs(kept) do
        turned[#kept + 1 - place] = place % 2 == 0 and value or (value + taken) % SUMS
      end
      push('LPUSH', turned)
    else
      local kept = call('LRANGE', key, gone and 2 * ours + 1 or 2 * ours - 1, -1)
      call('LTRIM', key, 2 * expired, 2 * ours - 2)
      for place = 2, #kept, 2 do
        kept[place] = (kept[place] - taken) % SUMS
      end
      push('RPUSH', kept)
    end
    if verb == RENEW then
      local _, _, _, charge = log(key, CHARGE, cost, count, period, ceiling, nil, 0)
      return charge()
    end
    return answer(last_at, used - taken, 0)
  end
end

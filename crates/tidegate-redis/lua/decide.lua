-- Decides a slice of checks inside the server: all are carried out, or none.
--
-- This is the twin of tidegate's kernels, down to the last unit. It decides
-- whether each check passes and moves the states; what a decision says about
-- itself (remaining, retry_after, ..) the client computes from the states that
-- are returned, with the very kernels that the memory store uses.
--
-- KEYS     one state for each check; in strict mode, the genesis key last
-- ARGV[1]  the time in microseconds, or '' for the server's own
-- ARGV[2]  milliseconds for which a state is kept after it has become fresh
-- ARGV[3]  'strict' if states from before the server's own time are not trusted
-- ARGV[4]  for the verb U: when what is to be undone was charged
-- then, for each check, its kind, its verb and its numbers:
--   b VERB cost full drain tick            bucket; costs and levels in units x period
--   w VERB cost count period tick style    window; 0 fixed, 1 from first request, 2 sliding
--   l VERB cost count period               log
--   c STATE passes after forget healed forget    what the client decided on STATE
-- Verbs: C charge, P peek, R refund, X reset, U undo a charge.
--
-- Reply: the time; 1 if all were carried out, 0 if not, 2 if a state of kind c
-- was not the expected one; then for each check 1 or 0 (does it pass?) and its
-- state, as it was before or, for a log and for U, as it is now.
--
-- Every number is an integer below 2^53, where doubles are exact, and so are
-- the floor of a quotient and the remainder.

local call, floor, find, sub, format = redis.call, math.floor, string.find, string.sub, string.format

local EXACT = 9007199254740992
local LEAST_GRACE = 1000000 -- of a state from the future, in microseconds

local now
if ARGV[1] == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
end
local kept_longer = tonumber(ARGV[2])
local undone = tonumber(ARGV[4])

-- Strict mode: whoever might have charged anything before this instant, and
-- been forgotten with a server that was lost, is taken to have charged it all.
local since
if ARGV[3] == 'strict' then
  local genesis = KEYS[#KEYS]
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%w+)')
  local value = call('GET', genesis)
  local known, at = string.match(value or '', '^(%w+):(%d+)$')
  if known == history then
    since = tonumber(at)
  else
    since = now
    call('SET', genesis, format('%s:%d', history, now))
  end
end

local function integer(text)
  local number = tonumber(text)
  if number and number >= 0 and number < EXACT and number % 1 == 0 then
    return number
  end
  error('TGFOREIGN a key holds what no limit wrote', 0)
end

local function lifetime(forget)
  local left = forget > now and forget - now or 0
  return -floor(-left / 1000) + kept_longer
end

-- Whether a check of this verb can change the state at all.
local function writes(verb, cost)
  return verb == 'X' or (verb ~= 'P' and cost > 0)
end

-- Each kernel returns whether the check passes, what to answer if nothing is
-- carried out, and how to carry it out: a function that answers in its place,
-- or nothing.

local function bucket(key, verb, cost, full, drain, size)
  local tick = floor(now / size)
  local horizon = -floor(-full / drain)
  local value = call('GET', key)
  local at, fraction = 0, 0
  if value then
    local colon = find(value, ':', 1, true)
    if colon then
      at, fraction = integer(sub(value, 1, colon - 1)), integer(sub(value, colon + 1))
    else
      at = integer(value)
    end
  end

  local function write()
    local forget = (fraction > 0 and at + 1 or at) * size
    local state = fraction > 0 and format('%d:%d', at, fraction) or format('%d', at)
    call('SET', key, state, 'PX', lifetime(forget))
    return state
  end

  if since then
    local first = floor(since / size)
    local full_until, rest = first + floor(full / drain), full % drain
    if at < full_until or (at == full_until and fraction < rest) then
      at, fraction = full_until, rest
      value = format('%d:%d', at, fraction)
    end
  end
  if at > tick + horizon then
    local grace = -floor(-LEAST_GRACE / size)
    if at > tick + horizon + (horizon > grace and horizon or grace) then
      at, fraction = tick + floor(full / drain), full % drain
      if writes(verb, cost) then
        write()
      end
    end
  end

  -- A level above full, which a clock that went back leaves, has no room.
  local level = 0
  if at >= tick then
    level = at - tick > horizon and EXACT or (at - tick) * drain + fraction
  end
  if verb == 'C' then
    return level + cost <= full, value, cost > 0 and function()
      at, fraction = tick + floor((level + cost) / drain), (level + cost) % drain
      write()
      return value
    end
  elseif verb == 'P' then
    return level + cost <= full, value
  elseif verb == 'X' then
    return true, value, function()
      call('DEL', key)
      return value
    end
  end
  if verb == 'U' then
    -- What has drained away since then cannot be given back.
    local drained = (tick - floor(undone / size)) * drain
    cost = cost - (drained > 0 and drained or 0)
  end
  return true, value, cost > 0 and function()
    if at < tick then
      return value
    end
    local whole, rest = floor(cost / drain), cost % drain
    if rest > fraction then
      whole, fraction = whole + 1, fraction + drain
    end
    at, fraction = at - whole, fraction - rest
    if at < tick then
      at, fraction = tick, 0
    end
    local state = write()
    return verb == 'U' and state or value
  end
end

local function window(key, verb, cost, count, period, size, style)
  local tick = floor(now / size)
  local value = call('GET', key)
  local start, current, previous = 0, 0, 0
  if value then
    local first, second = find(value, ':', 1, true), nil
    if first then
      second = find(value, ':', first + 1, true)
    end
    if not second then
      integer(nil)
    end
    start, current = integer(sub(value, 1, first - 1)), integer(sub(value, first + 1, second - 1))
    previous = integer(sub(value, second + 1))
  end
  local sliding = style == 2
  local horizon = sliding and 2 * period or period

  local function start_of(instant)
    return style == 1 and instant or instant - instant % period
  end

  local function write()
    if current == 0 and previous == 0 then
      call('DEL', key)
      return false
    end
    local windows = (sliding and current > 0) and 2 or 1
    local state = format('%d:%d:%d', start, current, previous)
    call('SET', key, state, 'PX', lifetime((start + windows * period) * size))
    return state
  end

  if since then
    local first = start_of(floor(since / size))
    if tick < first + horizon then
      if start < first or (style == 1 and start < first + period) then
        start, current, previous = first, count, 0
      elseif start == first then
        current = count
      elseif sliding and start == first + period then
        previous = count
      end
      value = format('%d:%d:%d', start, current, previous)
    end
  end
  if start > tick then
    local grace = -floor(-LEAST_GRACE / size)
    if start > tick + (horizon > grace and horizon or grace) then
      start, current, previous = start_of(tick), count, 0
      if writes(verb, cost) then
        write()
      end
    end
  end

  -- The state brought up to now.
  local age = tick > start and tick - start or 0
  local elapsed = age
  if (current == 0 and previous == 0) or age >= period then
    previous = (sliding and age < 2 * period) and current or 0
    start, current = start_of(tick), 0
    elapsed = tick - start
  end

  if verb == 'C' or verb == 'P' then
    local passes
    if sliding then
      passes = previous * (period - elapsed) + (current + cost) * period <= count * period
    else
      passes = current + cost <= count
    end
    return passes, value, verb == 'C' and cost > 0 and function()
      current = current + cost
      write()
      return value
    end
  elseif verb == 'X' then
    return true, value, function()
      call('DEL', key)
      return value
    end
  end
  return true, value, cost > 0 and function()
    local from_current, from_previous = cost < current and cost or current, 0
    if verb == 'U' then
      -- Only what was charged to a window is taken from it.
      local charged = floor(undone / size)
      if charged < start then
        from_current = 0
        if charged >= start - period then
          from_previous = cost < previous and cost or previous
        end
      end
    else
      local left = cost - from_current
      from_previous = left < previous and left or previous
    end
    current, previous = current - from_current, previous - from_previous
    local state = write()
    return verb == 'U' and state or value
  end
end

-- A log is a list: what was charged before its first entry, then for each
-- entry its time and what had been charged after it, modulo SUMS. Both rise,
-- so an entry is found by halving; dropping the oldest leaves such a list.
local SUMS = EXACT / 2

local function log(key, verb, cost, count, period)
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
  local function expire(newest)
    call('PEXPIRE', key, lifetime(newest + period))
  end

  if length > 0 and (entries < 1 or entries % 1 ~= 0) then
    integer(nil)
  end
  local newest = entries > 0 and at(entries) or 0
  if newest > now + (period > LEAST_GRACE and period or LEAST_GRACE) then
    entries, newest = 1, now
    if writes(verb, cost) then
      call('DEL', key)
      call('RPUSH', key, 0, now, count)
      expire(now)
    else
      only = now
    end
  end
  if since and now < since + period then
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

  local function answer(last, left, frees)
    return format('%d:%d:%d', last, left, frees)
  end
  local passes, unchanged = true, nil
  if verb == 'C' or verb == 'P' then
    passes = used + cost <= count
    if not passes then
      local excess = used + cost - count
      local freeing = first(expired, function(entry) return (sum(entry) - before) % SUMS >= excess end)
      unchanged = answer(newest, used, at(freeing) + period)
    end
  end
  unchanged = unchanged or answer(newest, used, 0)

  if verb == 'X' then
    return true, unchanged, function()
      call('DEL', key)
      return answer(0, 0, 0)
    end
  elseif verb == 'P' or cost == 0 then
    return passes, unchanged
  elseif verb == 'C' then
    return passes, unchanged, function()
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
      expire(time)
      return answer(time, used + cost, 0)
    end
  end
  return true, unchanged, not only and entries > 0 and function()
    if verb == 'R' then
      local left = used - cost
      if left <= 0 then
        call('DEL', key)
        return answer(0, 0, 0)
      end
      local last = first(expired, function(entry) return (sum(entry) - before) % SUMS >= left end)
      local last_at = at(last)
      call('LTRIM', key, 2 * expired, 2 * last)
      call('LSET', key, -1, (before + left) % SUMS)
      expire(last_at)
      return answer(last_at, left, 0)
    end
    -- An entry of an older time is none of ours, and one that has expired is gone.
    local ours = first(expired, function(entry) return at(entry) >= undone end)
    if ours > entries then
      return unchanged
    end
    local size = (sum(ours) - sum(ours - 1)) % SUMS
    local taken = cost < size and cost or size
    local tail = call('LRANGE', key, 2 * ours - 1, -1)
    call('LTRIM', key, 0, 2 * ours - 2)
    local last_at = ours > 1 and at(ours - 1) or 0
    for entry = taken == size and 3 or 1, #tail, 2 do
      last_at = integer(tail[entry])
      call('RPUSH', key, tail[entry], (tail[entry + 1] - taken) % SUMS)
    end
    if last_at == 0 or used == taken then
      call('DEL', key)
      return answer(0, 0, 0)
    end
    return answer(last_at, used - taken, 0)
  end
end

local reply = { now, 1 }
local carry_outs, withheld = {}, {}
local argument = 4
local slice = since and #KEYS - 1 or #KEYS

for index = 1, slice do
  local key = KEYS[index]
  local kind, verb = ARGV[argument + 1], ARGV[argument + 2]
  local passes, answer, carry_out
  if kind == 'b' then
    passes, answer, carry_out = bucket(key, verb, tonumber(ARGV[argument + 3]), tonumber(ARGV[argument + 4]),
      tonumber(ARGV[argument + 5]), tonumber(ARGV[argument + 6]))
    argument = argument + 6
  elseif kind == 'w' then
    passes, answer, carry_out = window(key, verb, tonumber(ARGV[argument + 3]), tonumber(ARGV[argument + 4]),
      tonumber(ARGV[argument + 5]), tonumber(ARGV[argument + 6]), tonumber(ARGV[argument + 7]))
    argument = argument + 7
  elseif kind == 'l' then
    passes, answer, carry_out = log(key, verb, tonumber(ARGV[argument + 3]), tonumber(ARGV[argument + 4]),
      tonumber(ARGV[argument + 5]))
    argument = argument + 5
  else
    -- Here the place of the verb is that of the expected state.
    local state = call('GET', key) or ''
    if verb ~= state then
      reply[2] = 2
    end
    local first = argument
    passes, answer = ARGV[first + 3] == '1', state
    local function put(from)
      if ARGV[from + 1] == '' then
        return
      elseif ARGV[from] == '' then
        call('DEL', key)
      else
        call('SET', key, ARGV[from], 'PX', lifetime(tonumber(ARGV[from + 1])))
      end
    end
    carry_out = function()
      put(first + 4)
      return state
    end
    withheld[#withheld + 1] = function()
      put(first + 6)
    end
    argument = argument + 7
  end
  if not passes and verb ~= 'P' and reply[2] == 1 then
    reply[2] = 0
  end
  reply[2 * index + 1] = passes and 1 or 0
  reply[2 * index + 2] = answer
  carry_outs[index] = carry_out
end

if reply[2] == 1 then
  for index = 1, slice do
    local carry_out = carry_outs[index]
    if carry_out then
      reply[2 * index + 2] = carry_out()
    end
  end
elseif reply[2] == 0 then
  for _, write_healed in ipairs(withheld) do
    write_healed()
  end
end
return reply

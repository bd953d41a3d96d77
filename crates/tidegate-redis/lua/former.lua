-- Limits that were replaced; part of the long script.
--
-- What was charged to a former limit stays in its state and counts beside what is used of the
-- check's own limit: as a floor under it, which melts. Former limits come behind all checks.
-- The text of each ends, after a semicolon, in the place of its check, what a unit is, the
-- most that can be used, when the limit is forgotten, and 1 for a leaky bucket, with colons;
-- the text of a check that has some in what a unit is, and the most that can be used.
--
-- The check answers for all of them. Behind its state come a ~ and, with colons: when it will
-- pass if it does not; what the former limits count before it and after it, in units; when
-- they and their queues end; and when a charge that was renewed there counts as made.

-- How many keys are of checks, and in which order to decide: a refund goes to the check's own
-- state first, and for all else what former limits count is known before.
local function in_order(keys)
  local checks = keys
  while checks > 0 and string.byte(ARGV[checks]) < 97 do
    checks = checks - 1
  end
  if checks == keys then
    return keys
  end
  local first, last = {}, {}
  for index = checks + 1, keys do
    local place = string.byte(ARGV[index], 2) == REFUND and last or first
    place[#place + 1] = index
  end
  for index = 1, checks do
    first[#first + 1] = index
  end
  for _, index in ipairs(last) do
    first[#first + 1] = index
  end
  return checks, first
end

-- What is known of the former limits of each check, by its place.
local besides = {}

-- Takes what this needs from the end of a text: the kind and the text without it, what is
-- known of the former limits of that check, and the numbers.
local function split(index, kind, spec)
  local semicolon = kind ~= 99 and kind ~= 100 and kind ~= 109 and string.find(spec, ';', 43, true) -- c d m
  if not semicolon then
    return kind, spec
  end
  local numbers = {}
  for number in string.gmatch(string.sub(spec, semicolon + 1), '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  local place = kind < 97 and table.remove(numbers, 1) or index
  local beside = besides[place]
    or { counts = {}, carry = 0, used = 0, after = 0, ends = 0, queue = 0, frees = 0, moment = 0 }
  besides[place] = beside
  kind = kind < 97 and kind + 32 or kind
  return kind, string.sub(spec, 1, semicolon - 1), beside, unpack(numbers)
end

-- The first time at which all that is used then is at most this.
local function first_time(beside, used_at, most)
  local function fits(wait)
    local used = used_at(now + wait)
    for _, former in ipairs(beside.counts) do
      used = used + former(now + wait)
    end
    return used <= most
  end
  local short, enough = 0, 1
  while not fits(enough) do
    short, enough = enough, 2 * enough
  end
  while enough - short > 1 do
    local middle = floor((short + enough) / 2)
    if fits(middle) then
      enough = middle
    else
      short = middle
    end
  end
  return now + enough
end

local function answer_beside(beside, carried_out)
  return string.format(
    '~%d:%d:%d:%d:%d:%d',
    beside.frees,
    beside.used,
    carried_out and beside.after or beside.used,
    beside.ends,
    beside.queue,
    carried_out and beside.moment or 0
  )
end


-- Which thresholds a check crossed; part of the long script.
--
-- The text has a word for each threshold, in ascending order: its percentage and, after a
-- colon, the most use that is below it. What was told is remembered beside the state: a
-- word for each threshold, its percentage and until when, for one period. Returns the
-- thresholds that were crossed and not told yet, as a number with a bit for each.
local function tell(key, text, lasts, from, to, unmarks)
  local asks = unmarks
  for below in string.gmatch(text, ':(%d+)') do
    below = tonumber(below)
    asks = asks or from <= below and to > below
  end
  if not asks then
    return '0'
  end
  local known = call('GET', key) or ''
  local bits, bit, marks, longest = 0, 1, '', now
  for percent, below in string.gmatch(text, '(%d+):(%d+)') do
    below = tonumber(below)
    local ends = tonumber(string.match(known, ' ' .. percent .. ':(%d+)') or 0)
    -- A mark that ends later than this clock explains is of a clock that was wrong.
    local is_told = ends > now and ends <= now + 2 * lasts
    if unmarks and to <= below then
      ends = 0
    elseif from <= below and to > below and not is_told then
      bits, ends = bits + bit, now + lasts
    end
    if ends > 0 then
      marks = marks .. string.format(' %s:%d', percent, ends)
      longest = ends > longest and ends or longest
    end
    bit = bit * 2
  end
  if marks ~= '' then
    call('SET', key, marks, 'PX', -floor((now - longest) / 1000) + kept_longer)
  elseif known ~= '' then
    call('DEL', key)
  end
  return string.format('%d', bits)
end


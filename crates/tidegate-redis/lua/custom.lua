-- Kernels that the client runs; part of the long script.
--
-- Returns as a log does, and also how to write what must be written when
-- nothing is carried out, and whether the state is the one decided on. The
-- state of a log is its list, with colons between the numbers. When it is
-- carried out the answer is what the client said it would be.

local function custom(key, is_list, spec, done, forget, forget_healed, known, after, healed)
  local stored = is_list and table.concat(call('LRANGE', key, 0, -1), ':') or not is_list and call('GET', key) or ''
  local first = 43
  local said = first + known + after + healed
  local function put(from, length, last)
    if last < 0 then
      return
    end
    if length == 0 then
      call('DEL', key)
    else
      local lifetime = (last > now and -floor((now - last) / 1000) or 0) + kept_longer
      local state = string.sub(spec, from, from + length - 1)
      if is_list then
        call('DEL', key)
        for number in string.gmatch(state, '%d+') do
          call('RPUSH', key, number)
        end
        call('PEXPIRE', key, lifetime)
      else
        call('SET', key, state, 'PX', lifetime)
      end
    end
  end
  -- The reply is words: no byte of a state may look like a space, or like what former limits count.
  local state = string.gsub(stored, '[%%%- %c~]', function(odd) return string.format('%%%02X', string.byte(odd)) end)
  return done == 89, state == '' and '-' or state, function()
    put(first + known, after, forget)
    local ahead = string.match(spec, '^=%d+:%d+:%d+:%d+:(%d+)$', said)
    return string.sub(spec, said), ahead and now + ahead
  end, function()
    put(first + known + after, healed, forget_healed)
  end, stored == string.sub(spec, first, first + known - 1)
end

-- Kernels that the client runs; part of the long script.
--
-- Returns as a log does, and also how to write what must be written when
-- nothing is carried out, and whether the state is the one decided on.

local function custom(key, spec, done, forget, forget_healed, known, after, healed)
  local stored = call('GET', key) or ''
  local first = 43
  local function put(from, length, last)
    if last < 0 then
      return
    elseif length == 0 then
      call('DEL', key)
    else
      local lifetime = (last > now and -floor((now - last) / 1000) or 0) + kept_longer
      call('SET', key, string.sub(spec, from, from + length - 1), 'PX', lifetime)
    end
  end
  -- The reply is words: no byte of a state may look like a space.
  local state = string.gsub(stored, '[%%%- %c]', function(odd) return string.format('%%%02X', string.byte(odd)) end)
  return done == 89, state == '' and '-' or state, function()
    put(first + known, after, forget)
    return '-'
  end, function()
    put(first + known + after, healed, forget_healed)
  end, stored == string.sub(spec, first, first + known - 1)
end

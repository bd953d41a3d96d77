-- Decides a slice of checks inside the server: all are carried out, or none.
--
-- This is the twin of tidegate's kernels, down to the last unit. It decides
-- whether each check passes and moves the states; what a decision says about
-- itself (remaining, retry_after, ..) the client computes from the states that
-- are returned, with the very kernels that the memory store uses.
--
-- The parts in this directory make two scripts: a short one for buckets and
-- windows (head, slice with bucket and window in it), and a long one for
-- everything (head, log, custom, slice). In a script this small, arguments,
-- replies and functions cost more of the server's time than deciding; so the
-- arguments are packed, the reply is one string, and the common kernels are no
-- functions.
--
-- KEYS  one state for each check, then one for each former limit; for a request with an
--       id, the id's key; in strict mode, the genesis key last
-- ARGV  for each key a letter for its kind, one for the verb, five doubles, a text:
--         b VERB cost full drain tick reach, cost    bucket; in units x period; reach in ticks
--         w VERB cost count period tick style    window; 0 fixed, 1 from first request, 2 sliding;
--                                                3 of the calendar: start and end for period and tick
--         l VERB cost count period ceiling -     log
--         c DONE forget forget length length length, states    what the client decided
--         d DONE ..                              the same, of a log
--         B, W, L    the same of a limit that the one of a check replaced: its text ends in
--                    what former.lua reads
--[[long]] --         m VERB step lasts from to unmarks, thresholds    what a step before it
--[[long]] --                                                crosses: C by the script, Y as the
--[[long]] --                                                client says; see tell.lua
--       then, where they are not the usual ones, the settings: the time in
--       microseconds (below zero for the server's own), the milliseconds for
--       which a state is kept after it has become fresh, whether (1, 2) to be strict,
--       and to withhold: to carry nothing out, whatever passes; and for how many
--       milliseconds to remember the id of the request, and what is done under it;
--       see once.lua.
-- Verbs: C charge, P peek; c and p the same for a class of requests that leaves something to
-- others: how much is the text, in the unit of the cost. R refund, X reset. D report what is
-- spent, into debt: up to the ceiling, which is its text for a bucket and a window, and the
-- last number that a log answers is what is not recorded. U undoes a charge, as far as it is
-- still there: its text is when that counts as made, a colon, and what is kept of it beside
-- the cost. E renews a charge of a log, so that it counts from now on, if all of it is there:
-- its text is when it was made, or nothing for that under the id of the request. S settles the
-- charge that was made under the id of the request: the cost is the most that can be added, and
-- the text the ceiling, what a unit is, and in units what it should have been. In the reply of
-- E and S, after the state come a slash, when and what was charged, and the cost in units.
-- For c and d, DONE is Y if the check passes, N if not; the states are the one decided on,
-- the one to write if all pass, and the one to write if not; a forget below zero says to
-- write nothing.
--
-- Reply: words, with a space between them. The time in seconds and microseconds; 1 if all were
-- carried out, 0 if not, 2 if a state of kind a, c or d was not the expected one, 3 and
-- nothing more if a calendar's period is over or yet to come; then for each check 1 or 0 (does
-- it pass?) and its state, as it was before or, for a log, as it is now; - if there was none.
-- Former limits have no words of their own; see former.lua.
--
-- Every number is an integer below 2^53, where doubles are exact, and so are
-- the floor of a quotient and the remainder.

local call, floor, unpack_numbers = redis.call, math.floor, struct.unpack

local EXACT = 9007199254740992
local MIN_GRACE = 1000000 -- of a state from the future, in microseconds
local FOREIGN = 'TGFOREIGN a key holds what no limit wrote'
local PEEK, CHARGE, REFUND, RESET, UNDO, REPORT, RENEW = 80, 67, 82, 88, 85, 68, 69
--[[long]] local SETTLE = 83

local settings = ARGV[#KEYS + 1]
--[[short]] local now, kept_longer, strict, withheld = -1, 1000, 0, 0
--[[long]] local now, kept_longer, strict, withheld, known_for, purpose = -1, 1000, 0, 0, 0
if settings then
--[[short]] now, kept_longer, strict, withheld = unpack_numbers('<dddd', settings)
--[[long]] now, kept_longer, strict, withheld, known_for, purpose = unpack_numbers('<dddddd', settings)
end
local seconds, microseconds
if now < 0 then
  local time = call('TIME')
  seconds, microseconds = time[1], time[2]
  now = seconds * 1000000 + microseconds
else
  seconds, microseconds = '0', string.format('%d', now)
end

-- Strict mode: a key that may have been charged before this instant, and was
-- lost with a server, is taken to have used its whole limit.
local since
if strict > 0 then
  local genesis = KEYS[#KEYS]
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%w+)')
  local known, at = string.match(call('GET', genesis) or '', '^(%w+):(%d+)$')
  -- A history that begins later than now was begun by a clock that was wrong:
  -- until the clock is there again, no request could pass. But a client that looked
  -- before (2) says when that was, and a history may have begun since.
  if known == history and (strict == 2 or tonumber(at) <= now) then
    since = tonumber(at)
  else
    since = now
--[[long]] if strict == 2 then
--[[long]]   local time = call('TIME')
--[[long]]   since = time[1] * 1000000 + time[2]
--[[long]] end
    call('SET', genesis, string.format('%s:%d', history, since))
  end
end

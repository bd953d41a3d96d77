//! Defects to plant in the scripts that decide inside the servers.

use super::Defect;

pub(super) const FOLDER: &str = "crates/tidegate-redis/lua/";

pub(super) const DEFECTS: &[Defect] = &[
    Defect {
        name: "script: one too few: `<` for `<=` in the bucket",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "passes = level + cost + kept_back <= full",
        to: "passes = level + cost + kept_back < full",
    },
    Defect {
        name: "script: one too many in the fixed window",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "passes = current + cost + kept_back <= count",
        to: "passes = current + cost + kept_back <= count + 1",
    },
    Defect {
        name: "script: lifetimes rounded down: floor for ceil",
        file: "crates/tidegate-redis/lua/slice.lua",
        from: "-floor((now - lasts) / 1000)",
        to: "floor((lasts - now) / 1000)",
    },
    Defect {
        name: "script: a new state is kept for ever",
        file: "crates/tidegate-redis/lua/slice.lua",
        from: "    elseif lasts then",
        to: "    elseif lasts and state then",
    },
    Defect {
        name: "script: a log is kept for ever",
        file: "crates/tidegate-redis/lua/log.lua",
        from: "expire(not only and entries > 0 and newest, time)",
        to: "expire(time, time)",
    },
    Defect {
        name: "script: a bucket's expiry holds for every cell",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "local same_cell = state and cell == stored - stored % horizon",
        to: "local same_cell = state",
    },
    Defect {
        name: "script: a bucket is forgotten with its cell",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "(cell + 2 * horizon) * size",
        to: "cell * size",
    },
    Defect {
        name: "script: a sliding counter is forgotten with its window",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "lasts = start ~= stored and (start + horizon) * size",
        to: "lasts = start ~= stored and (start + period) * size",
    },
    Defect {
        name: "script: a bucket moves by its cost, however far it moves",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "is_text and string.sub(spec, 43) or at - stored",
        to: "string.sub(spec, 43)",
    },
    Defect {
        name: "script: several limits: only the first can refuse",
        file: "crates/tidegate-redis/lua/slice.lua",
        from: "if not passes and verb ~= PEEK and outcome == ' 1' then",
        to: "if not passes and verb ~= PEEK and outcome == ' 1' and index == 1 then",
    },
    Defect {
        name: "script: what refuses is charged all the same",
        file: "crates/tidegate-redis/lua/slice.lua",
        from: "if write and outcome == ' 1' then",
        to: "if write and outcome ~= ' 2' then",
    },
    Defect {
        name: "script: a peek heals for good",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "        if verb == RESET or (verb ~= PEEK and cost > 0) then\n          local healed = string.format(fraction",
        to: "        if true then\n          local healed = string.format(fraction",
    },
    Defect {
        name: "script: a healed window is not written",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "          call('SET', key, healed, 'PX', -floor((now - (start + horizon) * size) / 1000) + kept_longer)\n",
        to: "",
    },
    Defect {
        name: "script: a bucket is healed without grace",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "if at > tick + reach + (horizon > grace and horizon or grace) then",
        to: "if at > tick + reach then",
    },
    Defect {
        name: "script: a clock that steps back grants: the window starts over",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "local elapsed = tick > start and tick - start or 0",
        to: "local elapsed = tick >= start and tick - start or 2 * period",
    },
    Defect {
        name: "script: a clock that steps back grants: the log forgets its own time",
        file: "crates/tidegate-redis/lua/log.lua",
        from: "local time = newest > now and newest or now",
        to: "local time = now",
    },
    Defect {
        name: "script: the sliding counter's weight is that of what has passed",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "previous * (period - elapsed) + (current + cost) * period",
        to: "previous * elapsed + (current + cost) * period",
    },
    Defect {
        name: "script: the sliding counter's previous window is rounded up",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "(current + cost) * period < (count - kept_back + 1) * period",
        to: "(current + cost) * period <= (count - kept_back) * period",
    },
    Defect {
        name: "script: the previous window is dropped",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "previous = sliding and elapsed < 2 * period and current or 0",
        to: "previous = 0",
    },
    Defect {
        name: "script: an entry of the log lives a microsecond too long",
        file: "crates/tidegate-redis/lua/log.lua",
        from: "return at(entry) + period > time end) - 1",
        to: "return at(entry) + period >= time end) - 1",
    },
    Defect {
        name: "script: one entry too many is trimmed",
        file: "crates/tidegate-redis/lua/log.lua",
        from: "call('LTRIM', key, 2 * expired, -1)",
        to: "call('LTRIM', key, 2 * expired + 2, -1)",
    },
    Defect {
        name: "script: a new entry is added to the one before: LSET for RPUSH",
        file: "crates/tidegate-redis/lua/log.lua",
        from: "call('RPUSH', key, time, total)",
        to: "call('LSET', key, -1, total)",
    },
    Defect {
        name: "script: a refund gives back more than its cost",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "from_previous = left < previous and left or previous",
        to: "from_previous = previous",
    },
    Defect {
        name: "script: an undo gives back what has drained away",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "cost = cost - (gone > 0 and gone or 0)",
        to: "cost = cost - (gone < 0 and gone or 0)",
    },
    Defect {
        name: "script: an undo takes from a window that was not charged",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "        if charged < start then\n          from_current = 0",
        to: "        if charged < start then\n          from_current = from_current",
    },
    Defect {
        name: "script: an undo removes another call's entry",
        file: "crates/tidegate-redis/lua/log.lua",
        from: "if not ours or ours > entries or at(ours) ~= undone then",
        to: "if not ours or ours > entries then",
    },
    Defect {
        name: "script: a window that is given back whole stays as it was",
        file: "crates/tidegate-redis/lua/window.lua",
        from: "write, value = 'DEL', nil",
        to: "write, value = nil, nil",
    },
    Defect {
        name: "script: strict mode trusts whichever history it finds",
        file: "crates/tidegate-redis/lua/head.lua",
        from: "if known == history and (strict == 2 or tonumber(at) <= now) then",
        to: "if known and (strict == 2 or tonumber(at) <= now) then",
    },
    Defect {
        name: "script: a state that was overtaken is overwritten",
        file: "crates/tidegate-redis/lua/custom.lua",
        from: "stored == string.sub(spec, first, first + known - 1)",
        to: "true",
    },
    Defect {
        name: "script: what no limit wrote is taken for a state",
        file: "crates/tidegate-redis/lua/bucket.lua",
        from: "if not (at and fraction and at >= 0 and at < EXACT and at % 1 == 0 and fraction < drain) then",
        to: "if not (at and fraction) then",
    },
];

-- Asks tidegate whether a request may pass: http-request lua.tidegate
--
-- It reads two variables of the transaction: txn.tidegate_path, and txn.tidegate_failure ("closed" or "open"). The way to
-- tidegate is the proxy of this address.

local TIDEGATE = "abns@tidegate"

-- Headers of the client that reach tidegate. Add those that the policy asks for, such as x-user for header.x-user.
local PASSED = { "accept" }

-- Fields of a refusal that reach the client.
local TOLD = { "content-type", "retry-after", "ratelimit", "ratelimit-policy" }

local function end_with(txn, status, headers, body)
    local reply = txn:reply({ status = status, body = body })
    for name, value in pairs(headers) do
        reply:add_header(name, value)
    end
    txn:done(reply)
end

core.register_action("tidegate", { "http-req" }, function(txn)
    local headers = {
        ["host"] = { "localhost" },
        ["x-forwarded-for"] = { txn.f:src() },
        ["x-forwarded-method"] = { txn.f:method() },
        ["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" },
        ["x-forwarded-host"] = { txn.sf:req_fhdr("host") },
        ["x-forwarded-uri"] = { txn.f:pathq() },
        -- If tidegate wants a token: ["authorization"] = { "Bearer TOKEN" },
    }
    for _, name in ipairs(PASSED) do
        local value = txn.f:req_fhdr(name)
        if value then
            headers[name] = { value }
        end
    end
    local answer = core.httpclient():get({
        url = "http://localhost" .. txn:get_var("txn.tidegate_path"),
        dst = TIDEGATE,
        headers = headers,
    })
    local status = answer and answer.status or 0
    local said = answer and answer.headers or {}
    local function field(name)
        return said[name] and said[name][0]
    end
    if status == 204 then
        txn:set_var("txn.tidegate_ratelimit", field("ratelimit"))
        txn:set_var("txn.tidegate_policy", field("ratelimit-policy"))
    elseif status >= 400 and status < 500 then
        local told = {}
        for _, name in ipairs(TOLD) do
            told[name] = field(name)
        end
        end_with(txn, status, told, answer.body)
    elseif txn:get_var("txn.tidegate_failure") ~= "open" then
        end_with(txn, 503, { ["retry-after"] = "1" }, "")
    end
end)

-- The requests that wrk sends. At the end it prints one line of JSON.
-- wrk ... -s load.lua URL -- METHOD PATH BODY KEYED TOKEN NAME USERS

local PREPARED = 4096

local method, path, body, keyed, name, users
local prepared = {}
local count = 0

-- 7919 is prime: the ids come in no order, and each of them comes.
local function fill(template, number)
  local id = 1 + (number * 7919) % users
  local values = { id = id, padded_id = string.format("%015d", id), new = name .. "-" .. number }
  return (template:gsub("{([%w_]+)}", values))
end

function init(args)
  method, path, body, keyed = args[1], args[2], args[3], args[4] == "true"
  name, users = args[6], tonumber(args[7])
  wrk.headers["Authorization"] = "Bearer " .. args[5]
  if method ~= "GET" then
    wrk.headers["Content-Type"] = "application/json"
    return
  end
  -- Built before the start, so that wrk has little to do.
  for i = 1, PREPARED do prepared[i] = wrk.format(method, fill(path, i)) end
end

function request()
  count = count + 1
  if method == "GET" then return prepared[1 + count % PREPARED] end
  if keyed then wrk.headers["Idempotency-Key"] = name .. "-" .. count end
  return wrk.format(method, method == "PATCH" and fill(path, count) or path, nil, fill(body, count))
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"duration_s":%f,"p50_ms":%f,"p99_ms":%f,"rejected":%d,"broken":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout
  ))
end

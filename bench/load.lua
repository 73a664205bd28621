-- What wrk sends, and what it tells at the end: one line of JSON.
-- wrk ... -s load.lua URL -- MODE TOKEN[,TOKEN...] NAME USERS

local mode, name, users
local tokens = {}
local count = 0
local ready = {}

local function get(path)
  return wrk.format("GET", path)
end

-- One request a user, all made before the start: the generator must not be what is measured.
local function prepareUsers()
  local total = 4096
  for i = 1, total do
    wrk.headers["Authorization"] = tokens[1 + i % #tokens]
    ready[i] = get("/api/v1/users/" .. (1 + (i * 7919) % users))
  end
end

local function postUser()
  local body = '{"email":"' .. name .. "-" .. count .. '@example.com","name":"Ann Example"}'
  return wrk.format("POST", "/api/v1/users", nil, body)
end

local items = '[{"sku":"tea-01","quantity":2,"unit_price":1999},'
  .. '{"sku":"cup-07","name":"Cup, blue","quantity":1,"unit_price":1250},'
  .. '{"sku":"pot-02","quantity":1,"unit_price":4900}]'

local function postOrder()
  wrk.headers["Idempotency-Key"] = name .. "-" .. count
  local user = 1 + (count * 7919) % users
  local body = '{"user_id":' .. user .. ',"currency":"EUR","items":' .. items .. "}"
  return wrk.format("POST", "/api/v1/orders", nil, body)
end

function init(args)
  mode, name, users = args[1], args[3], tonumber(args[4])
  for token in args[2]:gmatch("[^,]+") do
    tokens[#tokens + 1] = "Bearer " .. token
  end
  wrk.headers["Authorization"] = tokens[1]
  if mode == "user" then
    prepareUsers()
  elseif mode == "post-user" or mode == "post-order" then
    wrk.headers["Content-Type"] = "application/json"
  else
    ready[1] = get(mode)
  end
end

function request()
  count = count + 1
  if mode == "post-user" then return postUser() end
  if mode == "post-order" then return postOrder() end
  return ready[1 + count % #ready]
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"duration_s":%f,"p50_ms":%f,"p99_ms":%f,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout
  ))
end

-- wrk: the small workloads of fencebench, from its environment.
local method, path, size = os.getenv("METHOD"), os.getenv("REQPATH"), tonumber(os.getenv("SIZE"))
local resources, token, raise = tonumber(os.getenv("RESOURCES")), os.getenv("TOKEN"), os.getenv("RAISE") == "1"
local base, n, reqs = tonumber(token) or 0, 0, {}
local body = string.rep("x", size)

local function build(i, t)
  local head = method .. " " .. path .. i .. " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
  if t ~= "" then head = head .. "Fencing-Token: " .. t .. "\r\n" end
  if method == "GET" then return head .. "\r\n" end
  return head .. "Content-Length: " .. size .. "\r\n\r\n" .. body
end

init = function()
  if not raise then for i = 0, resources - 1 do reqs[i] = build(i, token) end end
end

request = function()
  n = n + 1
  if raise then return build(n % resources, string.format("%d", base + n)) end
  return reqs[n % resources]
end

done = function(s, l)
  local e = s.errors
  io.write(string.format('JSON{"requests":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,"errors":%d,"error_statuses":%d}\n',
    s.requests, s.duration / 1e6, l:percentile(50), l:percentile(99), e.connect + e.read + e.write + e.timeout, e.status))
end

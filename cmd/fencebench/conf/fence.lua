-- The fence that one would write oneself: compare-and-set of the highest token in Redis, then proxy_pass.
local script = [[
local cur = redis.call('GET', KEYS[1])
if cur then
  local c, t = tonumber(cur), tonumber(ARGV[1])
  if t < c then return cur end
  if t > c then redis.call('SET', KEYS[1], ARGV[1]) end
else
  redis.call('SET', KEYS[1], ARGV[1])
end
return '']]
local sha = ngx.sha1_bin(script):gsub('.', function(c) return string.format('%02x', c:byte()) end)

function fence(sock)
  local m = ngx.req.get_method()
  if m == 'GET' or m == 'HEAD' then return end
  local tok = ngx.var.http_fencing_token
  if not tok or not tok:match('^%d+$') then return ngx.exit(428) end
  local r = redis:new()
  r:set_timeout(2000)
  local ok, err = r:connect('unix:' .. sock)
  if not ok then ngx.log(ngx.ERR, 'redis ', err); return ngx.exit(503) end
  local res, err = r:evalsha(sha, 1, 'fence:' .. ngx.var.uri, tok)
  if not res and err and err:find('NOSCRIPT', 1, true) then
    res, err = r:eval(script, 1, 'fence:' .. ngx.var.uri, tok)
  end
  if not res then ngx.log(ngx.ERR, 'redis ', err); return ngx.exit(503) end
  r:set_keepalive(60000, 128)
  if res ~= '' then
    ngx.status = 409
    ngx.header['Fencing-High'] = res
    ngx.say('stale token')
    return ngx.exit(409)
  end
end

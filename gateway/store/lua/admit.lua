-- Let one request into its caller's quota, and take its lease if its key is free: all of it, or nothing. What `acquire.lua` does,
-- for routes with a quota. The arithmetic is that of `gateway/core/quota.py`, step by step.
--
-- KEYS[1]  when all that the caller took is earned again, in microseconds
-- KEYS[2]  the caller's places that are taken: owner tokens, by the instant in microseconds at which each ends by itself
-- KEYS[3]  the entry; none, if only the quota counts
-- ARGV[1]  microseconds in which a new key is earned; 0: this request takes none
-- ARGV[2]  how many may be taken at once
-- ARGV[3]  how many places there are; 0: this request takes none
-- ARGV[4]  the owner token
-- ARGV[5]  after how many milliseconds its place ends by itself
-- ARGV[6]  the lease value, where there is an entry
-- ARGV[7]  its TTL in milliseconds
-- Replies  nil: let in, and the lease is set; a value: that was there, and nothing has changed; otherwise a refusal, and nothing
--          has changed: {0} for the places, or {microseconds to wait} for the rate
if KEYS[3] then
  local value = redis.call('GET', KEYS[3])
  if value then
    return value
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local places = tonumber(ARGV[3])
if places > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZCARD', KEYS[2]) >= places then
    return {0}
  end
end

local interval = tonumber(ARGV[1])
if interval > 0 then
  local full = interval * tonumber(ARGV[2])
  local tat = math.min(math.max(tonumber(redis.call('GET', KEYS[1]) or 0) or 0, now), now + full)
  local wait = tat + interval - full - now
  if wait > 0 then
    return {math.ceil(wait)}
  end
  tat = tat + interval
  redis.call('SET', KEYS[1], string.format('%.17g', tat), 'PX', math.ceil((tat - now) / 1000))
end

if places > 0 then
  local ttl = tonumber(ARGV[5])
  redis.call('ZADD', KEYS[2], now + ttl * 1000, ARGV[4])
  if redis.call('PTTL', KEYS[2]) < ttl then
    redis.call('PEXPIRE', KEYS[2], ttl)
  end
end
if KEYS[3] then
  redis.call('SET', KEYS[3], ARGV[6], 'PX', ARGV[7])
end
return false

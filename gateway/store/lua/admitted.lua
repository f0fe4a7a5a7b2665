-- Change what a caller has taken of its quota.
--
-- KEYS[1]  when all that the caller took is earned again, in microseconds
-- KEYS[2]  the caller's places that are taken: owner tokens, by the instant in microseconds at which each ends by itself
-- ARGV[1]  hold: the place is taken for longer; leave: it is free; undo: it is free, and the new key was none
-- ARGV[2]  the owner token
-- ARGV[3]  after how many milliseconds the place ends by itself (hold); microseconds in which a new key is earned, or 0 (undo)
-- Replies  1
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[1] == 'hold' then
  local ttl = tonumber(ARGV[3])
  redis.call('ZADD', KEYS[2], now + ttl * 1000, ARGV[2])
  if redis.call('PTTL', KEYS[2]) < ttl then
    redis.call('PEXPIRE', KEYS[2], ttl)
  end
  return 1
end

redis.call('ZREM', KEYS[2], ARGV[2])
local interval = ARGV[1] == 'undo' and tonumber(ARGV[3]) or 0
if interval > 0 then
  local tat = math.max((tonumber(redis.call('GET', KEYS[1]) or 0) or 0) - interval, now)
  if tat > now then
    redis.call('SET', KEYS[1], string.format('%.17g', tat), 'PX', math.ceil((tat - now) / 1000))
  else
    redis.call('DEL', KEYS[1])
  end
end
return 1

-- Change entries, each only while it still is our own lease. Every write after the first goes through here, so nobody overwrites
-- another's entry and a late write finds its token gone. A completed entry never changes, also not one that we made.
--
-- KEYS     the entries
-- ARGV     four of each entry:
--   1  how our lease begins: format version, state "lease", owner token (18 bytes)
--   2  extend | complete | delete
--   3  TTL in milliseconds, at least 1 (extend, complete)
--   4  the completed value (complete)
-- Replies  of each entry 1: done; 0: it is not our lease (any more), and was not touched.
--          After an error in the middle, the entries before it have changed.
local replies = {}
for i, key in ipairs(KEYS) do
  local first = 4 * i - 3
  local value, operation, ttl = redis.call('GET', key), ARGV[first + 1], ARGV[first + 2]
  if not value or string.sub(value, 1, 18) ~= ARGV[first] then
    replies[i] = 0
  else
    if operation == 'extend' then
      redis.call('PEXPIRE', key, ttl)
    elseif operation == 'complete' then
      redis.call('SET', key, ARGV[first + 3], 'PX', ttl)
    elseif operation == 'delete' then
      redis.call('DEL', key)
    else
      return redis.error_reply('ERR unknown settle ' .. operation)
    end
    replies[i] = 1
  end
end
return replies

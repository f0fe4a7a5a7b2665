-- Change an entry only while it still is our own lease. Every write after the first goes through here, so nobody overwrites
-- another's entry and a late write finds its token gone. A completed entry never changes, also not one that we made.
--
-- KEYS[1]  the entry
-- ARGV[1]  how our lease begins: format version, state "lease", owner token (18 bytes)
-- ARGV[2]  extend | complete | delete
-- ARGV[3]  TTL in milliseconds, at least 1 (extend, complete)
-- ARGV[4]  the completed value (complete)
-- Replies  1: done; 0: the entry is not our lease (any more), nothing was touched
local value = redis.call('GET', KEYS[1])
if not value or string.sub(value, 1, 18) ~= ARGV[1] then
  return 0
end
if ARGV[2] == 'extend' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif ARGV[2] == 'complete' then
  redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
elseif ARGV[2] == 'delete' then
  redis.call('DEL', KEYS[1])
else
  return redis.error_reply('ERR unknown settle ' .. ARGV[2])
end
return 1

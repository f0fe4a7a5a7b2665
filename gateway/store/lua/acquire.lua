-- Take a lease if the key is free, else tell what is there. Same meaning as `SET key value NX GET PX ttl`, which Redis knows
-- from 7.0 on; a loser touches neither the value nor its TTL.
--
-- KEYS[1]  the entry
-- ARGV[1]  the lease value
-- ARGV[2]  its TTL in milliseconds
-- Replies  nil: the lease is set; otherwise the value that was there
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return false
end
return redis.call('GET', KEYS[1])

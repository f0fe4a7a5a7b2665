-- How far attempts have come, and the routes whose upstreams take part. What is said at the head of reserve.sql holds here. What upstreams
-- call themselves is in `gateway/store/co_commit.sql`.


-- name: advance
-- The data is JSON, and compared by its text: a repetition sends the same.
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        recovery_point = $4,
        recovery_data = $5::text::json,
        locked_until = greatest(h.locked_until, now() + p.lease),
        reconcile_after = greatest(h.locked_until, now() + p.lease) + h.max_execution
    FROM held h
    LEFT JOIN gateway_participants p ON p.route_id = h.route_id
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.owner = $3 AND h.status = 'in_progress' AND NOT h.observed
    RETURNING
        r.scope_id,
        r.idempotency_key,
        r.record_id,
        r.attempt,
        r.locked_until,
        (h.recovery_point, h.recovery_data::text) IS DISTINCT FROM ($4, $5::text) AS changed
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail)
    SELECT scope_id, idempotency_key, record_id, 'upstream', 'advanced', jsonb_build_object('point', $4::text, 'attempt', attempt)
    FROM done
    WHERE changed
)
SELECT attempt, extract(epoch FROM locked_until - lapse_now())::float8 AS lease_left FROM done


-- name: progress
SELECT
    attempt,
    recovery_point,
    recovery_data::text AS recovery_data,
    extract(epoch FROM locked_until - lapse_now())::float8 AS lease_left
FROM gateway_records
WHERE scope_id = $1 AND idempotency_key = $2 AND owner = $3 AND status = 'in_progress' AND NOT observed


-- name: register_participants
INSERT INTO gateway_participants AS p (route_id, lease, retention, gone_for, keep_for, longest_answer, co_commit)
SELECT
    route_id,
    make_interval(secs => lease),
    make_interval(secs => retention),
    make_interval(secs => gone_for),
    make_interval(secs => keep_for),
    longest_answer,
    co_commit
FROM unnest($1::text[], $2::float8[], $3::float8[], $4::float8[], $5::float8[], $6::bigint[], $7::boolean[])
    AS r (route_id, lease, retention, gone_for, keep_for, longest_answer, co_commit)
ORDER BY route_id COLLATE "C"
ON CONFLICT (route_id) DO UPDATE
SET lease = excluded.lease,
    retention = excluded.retention,
    gone_for = excluded.gone_for,
    keep_for = excluded.keep_for,
    longest_answer = excluded.longest_answer,
    co_commit = excluded.co_commit

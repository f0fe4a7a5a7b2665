-- Statements of the release before retention and tombstones, as they were. They must go on working beside the present ones.


-- name: reserve
WITH intent AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::text[], $3::bytea[], $4::smallint[], $5::bytea[], $6::bytea[], $7::text[],
        $8::text[], $9::text[], $10::bytea[], $11::float8[], $12::float8[], $13::boolean[]
    ) AS i (
        scope_id, idempotency_key, request_fingerprint, fingerprint_version, fingerprint_policy, owner, route_id,
        request_id, request_method, request_target, lease, max_execution, reconcilable
    )
), inserted AS (
    INSERT INTO gateway_records AS r (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, request_method, request_target, locked_until, max_execution, reconcilable, reconcile_after
    )
    SELECT
        scope_id, idempotency_key, gen_random_uuid(), route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        'in_progress', owner, request_method, request_target, now() + make_interval(secs => lease),
        make_interval(secs => max_execution), reconcilable, now() + make_interval(secs => lease + max_execution)
    FROM intent
    ORDER BY scope_id COLLATE "C", idempotency_key COLLATE "C"
    ON CONFLICT (scope_id, idempotency_key) DO NOTHING
    RETURNING r.owner, r.record_id
)
SELECT
    owner AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    record_id,
    NULL::bigint AS version,
    NULL::text AS status,
    NULL::bytea AS request_fingerprint,
    NULL::smallint AS fingerprint_version,
    NULL::bytea AS fingerprint_policy,
    NULL::bytea AS owner,
    1 AS attempt,
    NULL::text AS request_id,
    NULL::float8 AS lease_left,
    NULL::float8 AS expires_in,
    NULL::bigint AS expires_at_us,
    NULL::boolean AS dead_lettered,
    NULL::float8 AS reconcile_in,
    NULL::text AS last_error_code,
    NULL::smallint AS response_status_code,
    NULL::bytea AS response_reason,
    NULL::bytea AS response_headers,
    NULL::bytea AS response_body,
    NULL::smallint AS response_body_encoding,
    NULL::bigint AS response_body_length,
    NULL::bytea AS response_body_digest,
    NULL::smallint AS response_schema_version,
    false AS body_left_out
FROM inserted
UNION ALL
SELECT
    i.owner,
    (extract(epoch FROM now()) * 1000000)::bigint,
    r.record_id,
    r.version,
    r.status,
    r.request_fingerprint,
    r.fingerprint_version,
    r.fingerprint_policy,
    r.owner,
    r.attempt,
    r.request_id,
    extract(epoch FROM r.locked_until - now())::float8,
    extract(epoch FROM r.expires_at - now())::float8,
    (extract(epoch FROM r.expires_at) * 1000000)::bigint,
    r.dead_lettered_at IS NOT NULL,
    extract(epoch FROM r.reconcile_after - now())::float8,
    r.last_error_code,
    r.response_status_code,
    r.response_reason,
    CASE WHEN NOT large.answer THEN r.response_headers END,
    CASE WHEN NOT large.answer THEN r.response_body END,
    r.response_body_encoding,
    r.response_body_length,
    r.response_body_digest,
    r.response_schema_version,
    large.answer
FROM intent i
JOIN gateway_records r ON r.scope_id = i.scope_id AND r.idempotency_key = i.idempotency_key
CROSS JOIN LATERAL (
    SELECT octet_length(r.response_headers)::bigint + coalesce(octet_length(r.response_body), 0) > $14::bigint AS answer
) AS large


-- name: find
SELECT
    NULL::bytea AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    record_id,
    version,
    status,
    request_fingerprint,
    fingerprint_version,
    fingerprint_policy,
    owner,
    attempt,
    request_id,
    extract(epoch FROM locked_until - now())::float8 AS lease_left,
    extract(epoch FROM expires_at - now())::float8 AS expires_in,
    (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at_us,
    dead_lettered_at IS NOT NULL AS dead_lettered,
    extract(epoch FROM reconcile_after - now())::float8 AS reconcile_in,
    last_error_code,
    response_status_code,
    response_reason,
    CASE WHEN NOT large.answer THEN response_headers END AS response_headers,
    CASE WHEN NOT large.answer THEN response_body END AS response_body,
    response_body_encoding,
    response_body_length,
    response_body_digest,
    response_schema_version,
    large.answer AS body_left_out
FROM gateway_records
CROSS JOIN LATERAL (
    SELECT octet_length(response_headers)::bigint + coalesce(octet_length(response_body), 0) > $3::bigint AS answer
) AS large
WHERE scope_id = $1 AND idempotency_key = $2


-- name: retry
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
)
UPDATE gateway_records r
SET version = r.version + 1,
    status = 'in_progress',
    owner = $5,
    attempt = r.attempt + 1,
    route_id = $9,
    request_id = $10,
    request_method = $11,
    request_target = $12,
    locked_until = now() + make_interval(secs => $13::float8),
    max_execution = make_interval(secs => $14::float8),
    reconcilable = $15,
    reconcile_after = now() + make_interval(secs => $13::float8 + $14::float8),
    expires_at = NULL
FROM held h
WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    AND h.record_id = $3 AND h.version = $4
    AND h.status = 'failed_retryable' AND h.expires_at > now()
    AND (h.request_fingerprint = $6 OR h.fingerprint_version <> $7::smallint OR h.fingerprint_policy <> $8)
RETURNING r.record_id, r.attempt, (extract(epoch FROM now()) * 1000000)::bigint AS now_us


-- name: new_life
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
)
UPDATE gateway_records r
SET version = r.version + 1,
    record_id = gen_random_uuid(),
    status = 'in_progress',
    owner = $5,
    attempt = 1,
    request_fingerprint = $6,
    fingerprint_version = $7,
    fingerprint_policy = $8,
    route_id = $9,
    request_id = $10,
    request_method = $11,
    request_target = $12,
    recovery_point = NULL,
    captured = NULL,
    response_status_code = NULL,
    response_reason = NULL,
    response_headers = NULL,
    response_body = NULL,
    response_body_encoding = 0,
    response_body_length = NULL,
    response_body_digest = NULL,
    response_schema_version = NULL,
    last_error_code = NULL,
    locked_until = now() + make_interval(secs => $13::float8),
    max_execution = make_interval(secs => $14::float8),
    reconcilable = $15,
    reconcile_after = now() + make_interval(secs => $13::float8 + $14::float8),
    reconcile_attempts = 0,
    observed = false,
    created_at = now(),
    completed_at = NULL,
    expires_at = NULL
FROM held h
WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    AND h.record_id = $3 AND h.version = $4
    AND h.status IN ('completed', 'failed_retryable') AND h.expires_at <= now()
RETURNING r.record_id, r.attempt, (extract(epoch FROM now()) * 1000000)::bigint AS now_us


-- name: lapse
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
)
UPDATE gateway_records r
SET version = r.version + 1,
    status = 'unknown',
    last_error_code = 'lease_expired',
    locked_until = NULL,
    unknown_since = now(),
    dead_lettered_at = CASE WHEN NOT r.reconcilable THEN now() END
FROM held h
WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    AND h.record_id = $3 AND h.version = $4
    AND h.status = 'in_progress' AND h.locked_until <= now()
RETURNING r.version


-- name: complete
WITH settle AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::text[], $3::bytea[], $4::float8[], $5::smallint[], $6::bytea[], $7::bytea[],
        $8::bytea[], $9::smallint[], $10::bigint[], $11::bytea[], $12::smallint[]
    ) AS s (
        scope_id, idempotency_key, owner, retention, status_code, reason, headers,
        body, body_encoding, body_length, body_digest, schema_version
    )
), held AS MATERIALIZED (
    SELECT
        s.owner AS settler,
        r.scope_id,
        r.idempotency_key,
        r.owner = s.owner AS mine,
        r.status,
        r.expires_at,
        r.response_status_code = s.status_code AND r.response_body_digest = s.body_digest AS same_answer
    FROM settle s
    JOIN gateway_records r ON r.scope_id = s.scope_id AND r.idempotency_key = s.idempotency_key
    ORDER BY r.scope_id, r.idempotency_key
    FOR UPDATE OF r
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'completed',
        response_status_code = s.status_code,
        response_reason = s.reason,
        response_headers = s.headers,
        response_body = s.body,
        response_body_encoding = s.body_encoding,
        response_body_length = s.body_length,
        response_body_digest = s.body_digest,
        response_schema_version = s.schema_version,
        locked_until = NULL,
        reconcile_after = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        completed_at = now(),
        expires_at = now() + make_interval(secs => s.retention)
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.mine AND h.status IN ('in_progress', 'unknown', 'failed_retryable')
    RETURNING h.settler, r.expires_at
)
SELECT
    s.owner AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    CASE
        WHEN d.settler IS NOT NULL THEN 'done'
        WHEN h.settler IS NULL THEN 'missing'
        WHEN h.mine AND h.status = 'completed' AND h.same_answer THEN 'already'
        ELSE 'stale'
    END AS transition,
    (extract(epoch FROM coalesce(d.expires_at, h.expires_at)) * 1000000)::bigint AS expires_at_us
FROM settle s
LEFT JOIN held h ON h.settler = s.owner
LEFT JOIN done d ON d.settler = s.owner


-- name: release
WITH settle AS MATERIALIZED (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::float8[])
        AS s (scope_id, idempotency_key, owner, reason, retention)
), held AS MATERIALIZED (
    SELECT s.owner AS settler, r.scope_id, r.idempotency_key, r.owner = s.owner AS mine, r.status
    FROM settle s
    JOIN gateway_records r ON r.scope_id = s.scope_id AND r.idempotency_key = s.idempotency_key
    ORDER BY r.scope_id, r.idempotency_key
    FOR UPDATE OF r
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'failed_retryable',
        last_error_code = s.reason,
        locked_until = NULL,
        reconcile_after = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        expires_at = now() + make_interval(secs => s.retention)
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.mine AND h.status IN ('in_progress', 'unknown')
    RETURNING h.settler
)
SELECT
    s.owner AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    CASE
        WHEN d.settler IS NOT NULL THEN 'done'
        WHEN h.settler IS NULL THEN 'missing'
        WHEN h.mine AND h.status = 'failed_retryable' THEN 'already'
        ELSE 'stale'
    END AS transition,
    NULL::bigint AS expires_at_us
FROM settle s
LEFT JOIN held h ON h.settler = s.owner
LEFT JOIN done d ON d.settler = s.owner


-- name: doubt
WITH settle AS MATERIALIZED (
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[])
        AS s (scope_id, idempotency_key, owner, reason)
), held AS MATERIALIZED (
    SELECT s.owner AS settler, r.scope_id, r.idempotency_key, r.owner = s.owner AS mine, r.status
    FROM settle s
    JOIN gateway_records r ON r.scope_id = s.scope_id AND r.idempotency_key = s.idempotency_key
    ORDER BY r.scope_id, r.idempotency_key
    FOR UPDATE OF r
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'unknown',
        last_error_code = s.reason,
        locked_until = NULL,
        unknown_since = now(),
        dead_lettered_at = CASE WHEN NOT r.reconcilable THEN now() END
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.mine AND h.status = 'in_progress'
    RETURNING h.settler
)
SELECT
    s.owner AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    CASE
        WHEN d.settler IS NOT NULL THEN 'done'
        WHEN h.settler IS NULL THEN 'missing'
        WHEN h.mine AND h.status = 'unknown' THEN 'already'
        ELSE 'stale'
    END AS transition,
    NULL::bigint AS expires_at_us
FROM settle s
LEFT JOIN held h ON h.settler = s.owner
LEFT JOIN done d ON d.settler = s.owner


-- name: renew
WITH due AS MATERIALIZED (
    SELECT r.scope_id, r.idempotency_key, l.duration
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::float8[]) AS l (scope_id, idempotency_key, owner, duration)
    JOIN gateway_records r ON r.scope_id = l.scope_id AND r.idempotency_key = l.idempotency_key
    WHERE r.owner = l.owner AND r.status = 'in_progress'
    ORDER BY r.scope_id, r.idempotency_key
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE gateway_records r
SET version = r.version + 1,
    locked_until = now() + make_interval(secs => due.duration),
    reconcile_after = now() + make_interval(secs => due.duration) + r.max_execution
FROM due
WHERE r.scope_id = due.scope_id AND r.idempotency_key = due.idempotency_key
RETURNING r.owner, (extract(epoch FROM now()) * 1000000)::bigint AS now_us


-- name: sweep
WITH lapsed AS MATERIALIZED (
    SELECT scope_id, idempotency_key
    FROM gateway_records
    WHERE status = 'in_progress' AND locked_until <= now()
    ORDER BY locked_until
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
UPDATE gateway_records r
SET version = r.version + 1,
    status = 'unknown',
    last_error_code = 'lease_expired',
    locked_until = NULL,
    unknown_since = now(),
    dead_lettered_at = CASE WHEN NOT r.reconcilable THEN now() END
FROM lapsed
WHERE r.scope_id = lapsed.scope_id AND r.idempotency_key = lapsed.idempotency_key
RETURNING r.scope_id, r.idempotency_key, r.route_id, r.request_id, r.attempt


-- name: reap
WITH expired AS MATERIALIZED (
    SELECT scope_id, idempotency_key
    FROM gateway_records
    WHERE expires_at <= now() AND status IN ('completed', 'failed_retryable')
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), reaped AS (
    DELETE FROM gateway_records r
    USING expired
    WHERE r.scope_id = expired.scope_id AND r.idempotency_key = expired.idempotency_key
    RETURNING 1
)
SELECT count(*) AS reaped FROM reaped


-- name: counts
WITH rare AS (
    SELECT
        (SELECT count(*) FROM gateway_records WHERE status = 'in_progress') AS in_progress,
        (SELECT count(*) FROM gateway_records WHERE status = 'failed_retryable') AS failed_retryable,
        (SELECT count(*) FROM gateway_records WHERE status = 'unknown') AS unknown,
        (SELECT count(*) FROM gateway_records WHERE dead_lettered_at IS NOT NULL) AS dead_letters,
        (SELECT min(unknown_since) FROM gateway_records WHERE status = 'unknown') AS oldest,
        (SELECT count(*) FROM (SELECT FROM gateway_records WHERE status = 'completed' LIMIT $1::bigint) AS first) AS some_completed,
        (SELECT reltuples::bigint FROM pg_class WHERE oid = 'gateway_records'::regclass) AS estimated
)
SELECT
    in_progress,
    CASE
        WHEN some_completed < $1::bigint THEN some_completed
        ELSE greatest(some_completed, estimated - in_progress - failed_retryable - unknown)
    END AS completed,
    failed_retryable,
    unknown,
    dead_letters,
    greatest(coalesce(extract(epoch FROM now() - oldest), 0), 0)::float8 AS unknown_oldest_age
FROM rare


-- name: live_records
WITH seen AS MATERIALIZED (
    SELECT count(*) AS found, bool_or(live.expires_at IS NULL) AS endless, max(live.expires_at) AS last
    FROM (
        SELECT expires_at
        FROM gateway_records
        WHERE scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
            AND (expires_at IS NULL OR expires_at > now())
        LIMIT $2::bigint
    ) AS live
)
SELECT
    found,
    CASE WHEN endless OR found < $2::bigint THEN endless ELSE
        EXISTS (
            SELECT FROM gateway_records
            WHERE status = 'in_progress' AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
        ) OR EXISTS (
            SELECT FROM gateway_records
            WHERE status = 'unknown' AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
        )
    END AS endless,
    CASE WHEN found < $2::bigint THEN last ELSE (
        SELECT expires_at
        FROM gateway_records
        WHERE expires_at IS NOT NULL AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
        ORDER BY expires_at DESC
        LIMIT 1
    ) END AS last
FROM seen

-- Statements of the release before `response_body_encoding`, as they were. They must go on working beside the present ones.


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
    r.response_headers,
    CASE WHEN r.response_body_length <= $14::bigint THEN r.response_body END,
    r.response_body_length,
    r.response_body_digest,
    r.response_schema_version,
    r.response_body_length > $14::bigint AND r.response_body IS NOT NULL
FROM intent i
JOIN gateway_records r ON r.scope_id = i.scope_id AND r.idempotency_key = i.idempotency_key


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
    response_headers,
    response_body,
    response_body_length,
    response_body_digest,
    response_schema_version,
    false AS body_left_out
FROM gateway_records
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


-- name: complete
WITH settle AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::text[], $3::bytea[], $4::float8[], $5::smallint[], $6::bytea[], $7::bytea[],
        $8::bytea[], $9::bigint[], $10::bytea[], $11::smallint[]
    ) AS s (
        scope_id, idempotency_key, owner, retention, status_code, reason, headers,
        body, body_length, body_digest, schema_version
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

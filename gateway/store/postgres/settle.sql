-- How an attempt ends, or goes on. What is said at the head of reserve.sql holds here.


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
    doubtful_until = r.reconcile_after,
    reconcile_after = CASE WHEN r.evidence ->> 'of' = encode(r.owner, 'hex') THEN now() ELSE r.reconcile_after END,
    reconcile_attempts = 0,
    reconcile_agreed = 0,
    looked_at = NULL,
    agreed_at = NULL,
    dead_lettered_at = CASE
        WHEN NOT r.reconcilable AND NOT r.observed AND (r.evidence ->> 'of' = encode(r.owner, 'hex')) IS NOT TRUE THEN now()
    END,
    expires_at = CASE WHEN r.observed THEN now() + make_interval(secs => $5::float8) END
FROM held h
WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    AND h.record_id = $3 AND h.version = $4
    AND h.status = 'in_progress' AND h.locked_until <= lapse_now()
RETURNING r.version


-- name: complete, complete_alone
-- `complete_alone` is for one completion by the record's owner, as nearly all are. Where it changes nothing, `complete` says why.
WITH
-- only complete_alone
settle AS NOT MATERIALIZED (
-- only complete
settle AS MATERIALIZED (
-- all
    SELECT *
    FROM rows(
        scope_id text, idempotency_key text, owner bytea, status_code smallint, reason bytea, headers bytea,
        body bytea, body_encoding smallint, body_length bigint, body_digest bytea, schema_version smallint
    ) terms(retention float8, gone_for float8, keep_for float8)
)
-- only complete
, held AS MATERIALIZED (
    SELECT
        s.owner AS settler,
        r.scope_id,
        r.idempotency_key,
        r.owner = s.owner AS mine,
        r.status,
        r.expires_at,
        r.response_status_code = s.status_code AND r.response_body_digest = s.body_digest
            AND (r.completed_by IS NULL OR r.response_headers = s.headers) AS same_answer
    FROM settle s
    JOIN gateway_records r ON r.scope_id = s.scope_id AND r.idempotency_key = s.idempotency_key
    ORDER BY r.scope_id, r.idempotency_key
    FOR UPDATE OF r
), done AS (
-- all
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
        doubtful_until = NULL,
        request_sealed = NULL,
        evidence = NULL,
        due_at = NULL,
        completed_at = now(),
        expires_at = now() + make_interval(secs => s.retention),
        gone_for = make_interval(secs => s.gone_for),
        keep_for = make_interval(secs => s.keep_for)
-- only complete_alone
    FROM settle s
    WHERE r.scope_id = s.scope_id AND r.idempotency_key = s.idempotency_key
        AND r.owner = s.owner AND r.status IN ('in_progress', 'unknown', 'failed_retryable')
    RETURNING
        s.owner AS asked_by,
        (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
        'done' AS transition,
        (extract(epoch FROM r.expires_at) * 1000000)::bigint AS expires_at_us
-- only complete
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.mine AND h.status IN ('in_progress', 'unknown', 'failed_retryable', 'pending')
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
-- Where an event has said meanwhile that this attempt executed, the answer that says otherwise is not believed: the record stays (or becomes)
-- unknown, due now, and the reconciler concludes from the evidence.
WITH settle AS MATERIALIZED (
    SELECT *
    FROM rows(scope_id text, idempotency_key text, owner bytea, reason text) terms(retention float8, gone_for float8, keep_for float8)
), held AS MATERIALIZED (
    SELECT
        s.owner AS settler,
        r.scope_id,
        r.idempotency_key,
        r.owner = s.owner AS mine,
        r.status,
        coalesce(r.evidence ->> 'of' = encode(s.owner, 'hex'), false) AS proved
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
        doubtful_until = NULL,
        request_sealed = NULL,
        evidence = NULL,
        expires_at = now() + make_interval(secs => s.retention),
        gone_for = make_interval(secs => s.gone_for),
        keep_for = make_interval(secs => s.keep_for)
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.mine AND NOT h.proved AND h.status IN ('in_progress', 'unknown')
    RETURNING h.settler
), proved AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'unknown',
        last_error_code = s.reason,
        locked_until = NULL,
        unknown_since = now(),
        doubtful_until = r.reconcile_after,
        reconcile_after = now(),
        reconcile_attempts = 0,
        reconcile_agreed = 0,
        looked_at = NULL,
        agreed_at = NULL
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.mine AND h.proved AND h.status = 'in_progress'
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
    FROM rows(scope_id text, idempotency_key text, owner bytea, reason text)
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
        doubtful_until = r.reconcile_after,
        reconcile_after = CASE WHEN r.evidence ->> 'of' = encode(r.owner, 'hex') THEN now() ELSE r.reconcile_after END,
        reconcile_attempts = 0,
        reconcile_agreed = 0,
        looked_at = NULL,
        agreed_at = NULL,
        dead_lettered_at = CASE
            WHEN NOT r.reconcilable AND NOT r.observed AND (r.evidence ->> 'of' = encode(r.owner, 'hex')) IS NOT TRUE THEN now()
        END,
        expires_at = CASE WHEN r.observed THEN now() + make_interval(secs => $1::float8) END
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

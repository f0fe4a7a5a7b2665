-- Moving what is encrypted to the present key. A sealed value names its key in bytes 2 to 9; a sealed target has one byte before it.
-- $3 of the walks is the present key's name. Nothing here changes a version: what a record means stays the same.


-- name: walk_records, walk_archive
-- About 500 places, in the order of their keys, and whether something there is under another key: all archived lives of the last key come
-- with it, so that the next part begins behind it. Evidence counts apart: it goes with the doubt that it is about.
SELECT
    scope_id,
    idempotency_key,
    record_id,
    version,
    coalesce(response_schema_version = 3 AND substring(response_reason FROM 2 FOR 8) <> $3::bytea, false)
        OR coalesce(substring(request_sealed FROM 2 FOR 8) <> $3, false)
        OR (substring(request_target FROM 1 FOR 1) = '\x00'::bytea AND substring(request_target FROM 3 FOR 8) <> $3) AS stale,
    coalesce(evidence ->> 'encoding' = '2' AND substring(decode(evidence ->> 'reason', 'base64') FROM 2 FOR 8) <> $3, false) AS evident
-- only walk_records
FROM gateway_records
-- only walk_archive
FROM gateway_records_archive
-- all
WHERE (scope_id, idempotency_key) > ($1::text, $2::text)
ORDER BY scope_id, idempotency_key
FETCH FIRST 500 ROWS WITH TIES


-- name: sealed_record, sealed_archived
SELECT
    response_status_code, response_reason, response_headers, response_body, response_body_encoding, response_body_length,
    response_body_digest, response_schema_version, request_target, captured, correlation, request_sealed
-- only sealed_record
FROM gateway_records WHERE scope_id = $1::text AND idempotency_key = $2::text AND record_id = $3::uuid AND version = $4::bigint
-- only sealed_archived
FROM gateway_records_archive WHERE scope_id = $1::text AND idempotency_key = $2::text AND record_id = $3::uuid AND version = $4::bigint
-- all


-- name: move_record, move_archived
-- Fenced by the version: what has changed since is another attempt's, or another answer, and its turn comes with the next walk.
-- only move_record
UPDATE gateway_records
-- only move_archived
UPDATE gateway_records_archive
-- all
SET response_reason = $5::bytea,
    response_body = $6::bytea,
    response_body_digest = $7::bytea,
    request_target = $8::bytea,
    captured = $9::text::jsonb,
    correlation = $10::text,
    request_sealed = $11::bytea
WHERE scope_id = $1::text AND idempotency_key = $2::text AND record_id = $3::uuid AND version = $4::bigint
RETURNING true AS moved


-- name: erase
-- The answers, captured values and targets of one caller's ended operations, a batch in the order of their keys after $2. The records stay
-- until they expire, so that no retry runs. Their lives are listed as deleted, so that neither Redis nor any memory answers from a copy. What
-- has no target is erased already.
WITH held AS MATERIALIZED (
    SELECT scope_id, idempotency_key, record_id, expires_at
    FROM gateway_records
    WHERE scope_id = $1::text AND idempotency_key > $2::text AND status IN ('completed', 'failed_retryable')
        AND request_target <> ''::bytea
    ORDER BY scope_id, idempotency_key
    LIMIT 200
    FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        response_reason = CASE WHEN r.status = 'completed' THEN ''::bytea END,
        response_headers = CASE WHEN r.status = 'completed' THEN ''::bytea END,
        response_body = NULL,
        response_body_encoding = 0,
        response_body_length = CASE WHEN r.status = 'completed' THEN 0 END,
        response_body_digest = CASE WHEN r.status = 'completed' THEN ''::bytea END,
        response_schema_version = CASE WHEN r.status = 'completed' THEN 1 END,
        request_target = ''::bytea,
        request_sealed = NULL,
        captured = NULL,
        correlation = NULL,
        evidence = NULL,
        recovery_data = NULL
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    RETURNING r.scope_id, r.idempotency_key, r.record_id, r.status, r.expires_at
), counted AS (
    SELECT record_id, expires_at, row_number() OVER () AS n, count(*) OVER () AS all_of_them FROM done WHERE status = 'completed'
), numbered AS (
    UPDATE gateway_deletions_last l SET number = l.number + c.all_of_them FROM (SELECT max(all_of_them) AS all_of_them FROM counted) c
    WHERE c.all_of_them IS NOT NULL
    RETURNING l.number
), noted AS (
    INSERT INTO gateway_deletions (number, record_id, expires_at)
    SELECT numbered.number - counted.all_of_them + counted.n, counted.record_id, counted.expires_at FROM numbered CROSS JOIN counted
), proposed AS (
    DELETE FROM gateway_proposals WHERE scope_id = $1
), archived AS (
    DELETE FROM gateway_records_archive WHERE scope_id = $1
), remembered AS (
    UPDATE gateway_history h SET detail = '{}' FROM done d WHERE h.scope_id = d.scope_id AND h.idempotency_key = d.idempotency_key
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, 'sha256:' || encode(sha256(
            'idempotency-gateway/lookup/1'::bytea || '\x00'::bytea
            || convert_to(octet_length(scope_id) || ':' || scope_id || idempotency_key, 'UTF8')
        ), 'hex'), record_id, $3::text, 'erase', $4::text, '{}'
    FROM done
)
SELECT
    d.idempotency_key,
    d.status = 'completed' AS completed,
    (SELECT count(*) FROM gateway_records WHERE scope_id = $1 AND status NOT IN ('completed', 'failed_retryable')) AS left_over
FROM (SELECT 1) AS once
LEFT JOIN done d ON true
ORDER BY d.idempotency_key

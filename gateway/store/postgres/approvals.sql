-- Verdicts that wait for a second person, and sessions that ended before their time.


-- name: propose
-- Fenced by what the proposer saw. What is over goes with it.
WITH held AS MATERIALIZED (
    SELECT scope_id, idempotency_key, record_id, version, attempt, status
    FROM gateway_records
    WHERE scope_id = $1 AND idempotency_key = $2
    FOR UPDATE
), fits AS (
    SELECT * FROM held WHERE record_id = $3::uuid AND version = $4::bigint
), over AS (
    DELETE FROM gateway_proposals p
    WHERE p.expires_at <= now() AND (p.scope_id, p.idempotency_key) <> ($1, $2) AND EXISTS (SELECT FROM fits)
), written AS (
    INSERT INTO gateway_proposals AS p (
        scope_id, idempotency_key, record_id, attempt, status, proposal_id, change, proposer, identity, reason, retention, expires_at,
        response_status_code, response_reason, response_headers, response_body, response_body_encoding, response_body_length,
        response_body_digest, response_schema_version
    )
    SELECT
        scope_id, idempotency_key, record_id, attempt, status, $5::uuid, $6::text, $7::text, $8::text, $9::text, $10::float8,
        now() + make_interval(secs => $11::float8),
        $12::smallint, $13::bytea, $14::bytea, $15::bytea, $16::smallint, $17::bigint, $18::bytea, $19::smallint
    FROM fits
    ON CONFLICT (scope_id, idempotency_key) DO UPDATE
    SET record_id = EXCLUDED.record_id,
        attempt = EXCLUDED.attempt,
        status = EXCLUDED.status,
        proposal_id = EXCLUDED.proposal_id,
        change = EXCLUDED.change,
        proposer = EXCLUDED.proposer,
        identity = EXCLUDED.identity,
        reason = EXCLUDED.reason,
        retention = EXCLUDED.retention,
        proposed_at = now(),
        expires_at = EXCLUDED.expires_at,
        response_status_code = EXCLUDED.response_status_code,
        response_reason = EXCLUDED.response_reason,
        response_headers = EXCLUDED.response_headers,
        response_body = EXCLUDED.response_body,
        response_body_encoding = EXCLUDED.response_body_encoding,
        response_body_length = EXCLUDED.response_body_length,
        response_body_digest = EXCLUDED.response_body_digest,
        response_schema_version = EXCLUDED.response_schema_version
    WHERE p.expires_at <= now()
        OR p.identity = EXCLUDED.identity
        OR (p.record_id, p.attempt, p.status) <> (EXCLUDED.record_id, EXCLUDED.attempt, EXCLUDED.status)
    RETURNING p.scope_id, p.idempotency_key, p.record_id
), remembered AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $20::text, $21::text, $22::jsonb, $23::text, $24::text FROM written
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, idempotency_key, record_id, $25::text, $26::text, $27::text, $28::jsonb FROM written
)
SELECT CASE
    WHEN EXISTS (SELECT FROM written) THEN 'done'
    WHEN EXISTS (SELECT FROM fits) THEN 'already'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: proposal
SELECT p.*, r.route_id, (r.record_id, r.attempt, r.status) IS DISTINCT FROM (p.record_id, p.attempt, p.status) AS stale
FROM gateway_proposals p
LEFT JOIN gateway_records r ON r.scope_id = p.scope_id AND r.idempotency_key = p.idempotency_key
WHERE p.scope_id = $1 AND p.idempotency_key = $2 AND p.expires_at > now()


-- name: proposals
SELECT
    p.scope_id,
    p.idempotency_key,
    p.proposal_id,
    p.record_id,
    p.attempt,
    p.status,
    p.change,
    p.proposer,
    p.identity,
    p.reason,
    p.retention,
    p.proposed_at,
    p.expires_at,
    r.route_id,
    (r.record_id, r.attempt, r.status) IS DISTINCT FROM (p.record_id, p.attempt, p.status) AS stale
FROM gateway_proposals p
LEFT JOIN gateway_records r ON r.scope_id = p.scope_id AND r.idempotency_key = p.idempotency_key
WHERE p.expires_at > now() AND (p.proposed_at, p.proposal_id) > ($1::timestamptz, $2::uuid)
ORDER BY p.proposed_at, p.proposal_id
LIMIT $3


-- name: take_proposal
DELETE FROM gateway_proposals WHERE scope_id = $1 AND idempotency_key = $2 AND proposal_id = $3 AND expires_at > now() RETURNING true AS taken


-- name: reject_proposal
WITH done AS (
    DELETE FROM gateway_proposals
    WHERE scope_id = $1 AND idempotency_key = $2 AND proposal_id = $3
    RETURNING scope_id, idempotency_key, record_id
), remembered AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $4::text, $5::text, $6::jsonb, $7::text, $8::text FROM done
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, idempotency_key, record_id, $9::text, $10::text, $11::text, $12::jsonb FROM done
)
SELECT true AS taken FROM done


-- name: end_session
WITH over AS (
    DELETE FROM gateway_ended_sessions WHERE expires_at <= now() AND digest <> $1
)
INSERT INTO gateway_ended_sessions (digest, ended_at, expires_at)
VALUES ($1, $3, now() + make_interval(secs => $2::float8))
ON CONFLICT (digest) DO UPDATE
SET ended_at = greatest(gateway_ended_sessions.ended_at, EXCLUDED.ended_at),
    expires_at = greatest(gateway_ended_sessions.expires_at, EXCLUDED.expires_at)


-- name: ended_sessions
SELECT digest, ended_at FROM gateway_ended_sessions WHERE expires_at > now()

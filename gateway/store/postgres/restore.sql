-- Putting back what the database has lost. `gateway.store.postgres.restore` has the arguments.


-- name: restore
-- A row only if it was put in. $20 is the status of the answer; null: none, the record is in doubt. What an operator deleted stays deleted.
INSERT INTO gateway_records (
    scope_id, idempotency_key, record_id, owner, attempt, request_fingerprint, fingerprint_version, fingerprint_policy, route_id, request_id,
    request_method, request_target, max_execution, reconcilable, observed, captured, correlation, judged,
    status, response_status_code, response_reason, response_headers, response_body, response_body_encoding, response_body_length,
    response_body_digest, response_schema_version, completed_at, gone_for, keep_for,
    request_sealed, last_error_code, unknown_since, reconcile_after, doubtful_until, dead_lettered_at, expires_at
)
SELECT
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
    $11, $12, make_interval(secs => $13::float8), $14, $15, $16::text::jsonb, $17, $18,
    CASE WHEN $20::smallint IS NULL THEN 'unknown' ELSE 'completed' END,
    $20::smallint, $21, $22, $23, coalesce($24::smallint, 0), $25, $26, $27,
    CASE WHEN $20::smallint IS NOT NULL THEN now() END, make_interval(secs => $28::float8), make_interval(secs => $29::float8),
    CASE WHEN $20::smallint IS NULL THEN $30::bytea END,
    $31,
    CASE WHEN $20::smallint IS NULL THEN now() END,
    CASE WHEN $20::smallint IS NULL THEN now() + make_interval(secs => $19::float8 + $13::float8) END,
    CASE WHEN $20::smallint IS NULL THEN now() + make_interval(secs => $19::float8 + $13::float8) END,
    CASE WHEN $20::smallint IS NULL AND NOT $14 AND NOT $15 THEN now() END,
    CASE WHEN $32::float8 IS NOT NULL THEN now() + make_interval(secs => $32::float8) END
WHERE NOT EXISTS (SELECT FROM gateway_deletions WHERE record_id = $3)
ON CONFLICT (scope_id, idempotency_key) DO NOTHING
RETURNING (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at_us

-- What the background does with all records, and what it counts. What is said at the head of reserve.sql holds here.


-- name: sweep
WITH lapsed AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT scope_id, idempotency_key
        FROM gateway_records
        WHERE status = 'in_progress' AND locked_until <= now() AND locked_until <= lapse_now()
        ORDER BY locked_until
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
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
    expires_at = CASE WHEN r.observed THEN now() + make_interval(secs => $2::float8) END
FROM lapsed
WHERE r.scope_id = lapsed.scope_id AND r.idempotency_key = lapsed.idempotency_key
RETURNING r.scope_id, r.idempotency_key, r.route_id, r.request_id, r.attempt


-- name: clock
SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now_us


-- name: reap
-- Only `completed` and `failed_retryable` records have an `expires_at`, and observed ones in doubt (a CHECK constraint); said again here,
-- since a guarded record in doubt that is lost runs twice.
-- What is left of a record takes its place in the same statement: nobody's snapshot shows neither. A statement's snapshot may be older than
-- the record, however, and show neither for that reason; hence the age ($3).
-- Of what is locked only the first $2 bytes of answers go (and the first row in any case): a statement has a deadline, and would be rolled
-- back and repeated for ever.
WITH expired AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT
            scope_id,
            idempotency_key,
            expires_at,
            coalesce(octet_length(response_headers), 0)::bigint + coalesce(octet_length(response_body), 0) AS size
        FROM gateway_records
        WHERE expires_at <= now() AND expires_at <= expiry_now()
            AND (status IN ('completed', 'failed_retryable') OR (status = 'unknown' AND observed))
            AND (gone_for IS NULL OR status <> 'completed' OR created_at <= expiry_now() - make_interval(secs => $3::float8))
        ORDER BY expires_at
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
), ahead AS (
    SELECT scope_id, idempotency_key, sum(size) OVER (ORDER BY expires_at, scope_id, idempotency_key) - size AS bytes FROM expired
), reaped AS (
    DELETE FROM gateway_records r
    USING ahead
    WHERE r.scope_id = ahead.scope_id AND r.idempotency_key = ahead.idempotency_key AND ahead.bytes < $2::bigint
    RETURNING r.*
), remembered AS (
    INSERT INTO gateway_tombstones AS t (digest, route_id, scope, expires_at)
    SELECT
        sha256(
            'idempotency-gateway/lookup/1\000'::bytea
            || convert_to(octet_length(convert_to(scope_id, 'UTF8')) || ':' || scope_id || idempotency_key, 'UTF8')
        ),
        route_id,
        split_part(scope_id, ':', 1),
        expires_at + gone_for
    FROM reaped
    WHERE status = 'completed' AND gone_for IS NOT NULL
    ON CONFLICT (digest) DO UPDATE
    SET route_id = excluded.route_id,
        expires_at = greatest(t.expires_at, excluded.expires_at)
), archived AS (
    INSERT INTO gateway_records_archive (
        scope_id, idempotency_key, record_id, version, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, attempt, recovery_point, recovery_data, completed_by, request_method, request_target, captured, response_status_code,
        response_reason, response_headers, response_body, response_body_encoding, response_body_length, response_body_digest, response_schema_version,
        last_error_code, locked_until, max_execution, reconcilable, reconcile_after, reconcile_attempts, unknown_since, dead_lettered_at,
        observed, created_at, completed_at, expires_at, gone_for, keep_for, correlation, doubtful_until, looked_at, looked_over, agreed_at,
        requeued_at, reconcile_agreed, judged, archived_reason, purge_at
    )
    SELECT
        scope_id, idempotency_key, record_id, version, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, attempt, recovery_point, recovery_data, completed_by, request_method, request_target, captured, response_status_code,
        response_reason, response_headers, response_body, response_body_encoding, response_body_length, response_body_digest, response_schema_version,
        last_error_code, locked_until, max_execution, reconcilable, reconcile_after, reconcile_attempts, unknown_since, dead_lettered_at,
        observed, created_at, completed_at, expires_at, gone_for, keep_for, correlation, doubtful_until, looked_at, looked_over, agreed_at,
        requeued_at, reconcile_agreed, judged, 'expired', expires_at + keep_for
    FROM reaped
    WHERE keep_for IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS reaped FROM reaped


-- name: purge
-- Each in small batches of its own index; archived answers bounded in bytes, as `reap` does.
-- History is due a while after it was written. What belongs to a record that is still there (or archived) is put off then, so that no run
-- reads it twice: a batch of such lines counts as work, since others may be behind it.
WITH forgotten AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT digest
        FROM gateway_tombstones
        WHERE expires_at <= now() AND expires_at <= expiry_now()
        ORDER BY expires_at
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
), tombstones AS (
    DELETE FROM gateway_tombstones t USING forgotten WHERE t.digest = forgotten.digest RETURNING 1
), kept AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT
            scope_id,
            record_id,
            version,
            purge_at,
            coalesce(octet_length(response_headers), 0)::bigint + coalesce(octet_length(response_body), 0) AS size
        FROM gateway_records_archive
        WHERE purge_at <= now() AND purge_at <= expiry_now()
        ORDER BY purge_at
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
), ahead AS (
    SELECT scope_id, record_id, version, sum(size) OVER (ORDER BY purge_at, record_id, version) - size AS bytes FROM kept
), archived AS (
    DELETE FROM gateway_records_archive a
    USING ahead
    WHERE a.scope_id = ahead.scope_id AND a.record_id = ahead.record_id AND a.version = ahead.version AND ahead.bytes < $2::bigint
    RETURNING 1
), heard AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT webhook, digest
        FROM gateway_webhook_events
        WHERE expires_at <= now() AND expires_at <= expiry_now()
        ORDER BY expires_at
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
), events AS (
    DELETE FROM gateway_webhook_events e USING heard WHERE e.webhook = heard.webhook AND e.digest = heard.digest RETURNING 1
), aged AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT id, scope_id, idempotency_key, record_id
        FROM gateway_history
        WHERE purge_after <= now() AND purge_after <= expiry_now()
        ORDER BY purge_after
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
), judged AS MATERIALIZED (
    SELECT
        a.id,
        (
            SELECT true FROM gateway_records r
            WHERE r.scope_id = a.scope_id AND r.idempotency_key = a.idempotency_key AND r.record_id = a.record_id
        ) IS NOT NULL
        OR (SELECT true FROM gateway_records_archive k WHERE k.scope_id = a.scope_id AND k.record_id = a.record_id LIMIT 1) IS NOT NULL AS kept
    FROM aged a
), put_off AS (
    UPDATE gateway_history h SET purge_after = now() + interval '7 days' FROM judged WHERE h.id = judged.id AND judged.kept RETURNING 1
), lines AS (
    DELETE FROM gateway_history h USING judged WHERE h.id = judged.id AND NOT judged.kept RETURNING 1
)
SELECT
    (SELECT count(*) FROM tombstones)
    + (SELECT count(*) FROM archived)
    + (SELECT count(*) FROM events)
    + (SELECT count(*) FROM lines)
    + (SELECT count(*) FROM put_off) AS purged


-- name: counts
-- Exact for states that are rare and indexed. `completed` is counted up to $1 and taken from the planner's statistics above.
-- Those in doubt are read once, for all figures about them. The oldest is of those whose outcome is still looked for: dead letters wait for a
-- person, however long.
WITH doubtful AS MATERIALIZED (
    SELECT route_id, count(*) AS unknown, count(dead_lettered_at) AS dead_letters,
        min(unknown_since) FILTER (WHERE dead_lettered_at IS NULL) AS oldest
    FROM gateway_records
    WHERE status = 'unknown' AND NOT observed
    GROUP BY route_id
), waiting AS MATERIALIZED (
    SELECT route_id, count(*) AS pending, min(accepted_at) AS oldest FROM gateway_records WHERE status = 'pending' GROUP BY route_id
), rare AS (
    SELECT
        (SELECT coalesce(sum(pending), 0)::bigint FROM waiting) AS pending,
        (SELECT count(*) FROM gateway_records WHERE status = 'in_progress') AS in_progress,
        (SELECT count(*) FROM gateway_records WHERE status = 'failed_retryable') AS failed_retryable,
        (SELECT coalesce(sum(unknown), 0)::bigint FROM doubtful) AS unknown,
        (SELECT coalesce(sum(dead_letters), 0)::bigint FROM doubtful) AS dead_letters,
        (SELECT min(oldest) FROM doubtful) AS oldest,
        (SELECT count(*) FROM (SELECT FROM gateway_records WHERE status = 'completed' LIMIT $1::bigint) AS first) AS some_completed,
        (
            SELECT sum(greatest(reltuples, 0))::bigint
            FROM pg_class
            WHERE oid = 'gateway_records'::regclass OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'gateway_records'::regclass)
        ) AS estimated
)
SELECT
    pending,
    in_progress,
    CASE
        WHEN some_completed < $1::bigint THEN some_completed
        ELSE greatest(some_completed, estimated - pending - in_progress - failed_retryable - unknown)
    END AS completed,
    failed_retryable,
    unknown,
    dead_letters,
    greatest(coalesce(extract(epoch FROM now() - oldest), 0), 0)::float8 AS unknown_oldest_age,
    ARRAY(
        SELECT (route_id, unknown, dead_letters, greatest(extract(epoch FROM now() - oldest), 0)::float8) FROM doubtful ORDER BY route_id
    ) AS by_route,
    ARRAY(
        SELECT (route_id, pending, greatest(extract(epoch FROM now() - oldest), 0)::float8) FROM waiting ORDER BY route_id
    ) AS pending_by_route
FROM rare


-- name: stuck
-- Sessions of this role in this database that wait for a standby, and have done so for longer ($1) than anybody waits for them.
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user
    AND wait_event = 'SyncRep' AND query_start < clock_timestamp() - make_interval(secs => $1::float8)

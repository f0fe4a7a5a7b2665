-- Finding out what unknown attempts did. What is said at the head of reserve.sql holds here.
--
-- A verdict is one statement, fenced by the record's id, its version and its state. What is to be remembered of it (a line of history, a
-- webhook's event, an operator's line) is written by the same statement, from the row that it changed: with it or not at all.
--
-- Evidence counts if it is of the owner whose attempt the record holds: `evidence ->> 'of'`.
--
-- $1 to $4 of a verdict are the fence. Then come its own, and last those of what is written with it:
--     source, what, detail, actor, reason     the line of history
--     webhook, digest, remember               the event, or nulls. One that is known already has been applied: nothing is done again.
--                                             (Whoever applies it in between moves the version, too.)
--     actor, action, reason, detail           the audit line, or nulls


-- name: due_routes
-- Which of the routes have a record that is due: one step of the index for each.
SELECT route_id
FROM unnest($1::text[]) AS asked (route_id)
WHERE (
    SELECT true
    FROM gateway_records r
    WHERE r.route_id = asked.route_id AND r.status = 'unknown' AND r.dead_lettered_at IS NULL AND NOT r.observed AND r.reconcile_after <= now()
        AND r.reconcile_after <= lapse_now()
    ORDER BY r.reconcile_after
    LIMIT 1
)


-- name: take_due
-- $4 are fresh owner tokens for looks that act, else empty.
WITH due AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT
            scope_id,
            idempotency_key,
            owner,
            reconcile_after,
            coalesce(doubtful_until, unknown_since + max_execution) <= lapse_now() AS over,
            coalesce(evidence ->> 'of' = encode(owner, 'hex'), false) AS proved
        FROM gateway_records
        WHERE route_id = $1 AND status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed AND reconcile_after <= now()
            AND reconcile_after <= lapse_now()
        ORDER BY reconcile_after
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $2
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY reconcile_after, scope_id, idempotency_key) AS n FROM due
)
UPDATE gateway_records r
SET version = r.version + 1,
    owner = CASE WHEN d.proved THEN r.owner ELSE coalesce(($4::bytea[])[d.n], r.owner) END,
    reconcile_attempts = r.reconcile_attempts + 1,
    reconcile_after = now() + make_interval(secs => $3::float8),
    looked_at = now(),
    looked_over = d.over,
    doubtful_until = CASE
        WHEN cardinality($4::bytea[]) > 0 AND NOT d.proved THEN greatest(
            coalesce(r.doubtful_until, r.unknown_since + r.max_execution), now() + make_interval(secs => $3::float8) + r.max_execution
        )
        ELSE r.doubtful_until
    END
FROM numbered d
WHERE r.scope_id = d.scope_id AND r.idempotency_key = d.idempotency_key
RETURNING
    d.n,
    r.scope_id,
    r.idempotency_key,
    r.record_id,
    r.version,
    r.owner,
    r.route_id,
    r.request_id,
    r.request_method,
    r.request_target,
    r.attempt,
    r.last_error_code,
    r.reconcile_attempts,
    r.reconcile_agreed,
    extract(epoch FROM lapse_now() - r.agreed_at)::float8 AS agreed_ago,
    d.over,
    extract(epoch FROM lapse_now() - greatest(r.unknown_since, r.requeued_at))::float8 AS age,
    extract(epoch FROM now() - r.created_at)::float8 AS born_ago,
    r.captured,
    r.request_sealed,
    CASE WHEN d.proved THEN r.evidence END AS evidence


-- name: find_captured
-- A scope's ids are `<scope>:<principal>`; ';' follows ':' in byte order. Without an order, since more than one is too many.
SELECT
    scope_id,
    idempotency_key,
    record_id,
    version,
    status,
    coalesce(locked_until > lapse_now(), false) AS lease_live,
    coalesce(expires_at <= expiry_now(), false) AS expired,
    dead_lettered_at IS NOT NULL AS dead_lettered,
    route_id,
    request_id,
    attempt,
    reconcile_agreed,
    extract(epoch FROM lapse_now() - agreed_at)::float8 AS agreed_ago,
    CASE status
        WHEN 'unknown' THEN coalesce(doubtful_until, unknown_since + max_execution) <= lapse_now()
        WHEN 'in_progress' THEN reconcile_after <= lapse_now()
        ELSE false
    END AS over,
    captured
FROM gateway_records
WHERE correlation = $2 AND captured IS NOT NULL AND NOT observed
    AND scope_id >= $1::text || ':' AND scope_id < $1::text || ';'
LIMIT $3


-- name: conclude_executed
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'completed',
        completed_by = CASE WHEN $25::text IS NOT NULL THEN 'operator' WHEN $16 <> 'attempt' THEN 'verdict' END,
        response_status_code = $5,
        response_reason = $6,
        response_headers = $7,
        response_body = $8,
        response_body_encoding = $9,
        response_body_length = $10,
        response_body_digest = $11,
        response_schema_version = $12,
        locked_until = NULL,
        reconcile_after = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        doubtful_until = NULL,
        request_sealed = NULL,
        evidence = NULL,
        due_at = NULL,
        completed_at = now(),
        expires_at = now() + make_interval(secs => $13::float8),
        gone_for = make_interval(secs => $14::float8),
        keep_for = make_interval(secs => $15::float8)
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4 AND NOT h.observed
        AND (
            h.status IN ('unknown', 'pending')
            OR (h.status = 'in_progress' AND h.locked_until <= lapse_now())
            OR (h.status = 'failed_retryable' AND h.expires_at > expiry_now())
        )
        AND NOT EXISTS (SELECT FROM gateway_webhook_events e WHERE e.webhook = $21 AND e.digest = $22 AND e.expires_at > expiry_now())
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $16, $17, $18::text::jsonb, $19, $20 FROM done
), event AS (
    INSERT INTO gateway_webhook_events AS e (webhook, digest, expires_at)
    SELECT $21, $22, now() + make_interval(secs => $23::float8) FROM done WHERE $22::bytea IS NOT NULL
    ON CONFLICT (webhook, digest) DO UPDATE SET expires_at = greatest(e.expires_at, excluded.expires_at)
), audit AS (
    INSERT INTO gateway_audit (actor, action, reason, scope_id, idempotency_key, record_id, detail)
    SELECT $24, $25, $26, scope_id, idempotency_key, record_id, $27::text::jsonb FROM done WHERE $25::text IS NOT NULL
)
SELECT CASE
    WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: conclude_not_executed
-- $9: of the look that the fence is from, which may have moved `doubtful_until` itself. Where there is evidence of execution, nothing says
-- otherwise. Accepted work waits to be run once more.
WITH held AS MATERIALIZED (
    SELECT *, accepted_at IS NOT NULL AND request_sealed IS NOT NULL AS promised FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = CASE WHEN h.promised THEN 'pending' ELSE 'failed_retryable' END,
        judged = true,
        last_error_code = $5,
        reconcile_after = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        doubtful_until = NULL,
        due_at = CASE WHEN h.promised THEN now() END,
        request_sealed = CASE WHEN h.promised THEN r.request_sealed END,
        evidence = NULL,
        expires_at = CASE WHEN NOT h.promised THEN now() + make_interval(secs => $6::float8) END,
        gone_for = make_interval(secs => $7::float8),
        keep_for = make_interval(secs => $8::float8)
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4 AND NOT h.observed
        AND h.status = 'unknown'
        AND (h.evidence ->> 'of' = encode(h.owner, 'hex')) IS NOT TRUE
        AND CASE
            WHEN $9::boolean THEN h.looked_at IS NOT NULL AND h.looked_over
            ELSE coalesce(h.doubtful_until, h.unknown_since + h.max_execution) <= lapse_now()
        END
        AND NOT EXISTS (SELECT FROM gateway_webhook_events e WHERE e.webhook = $15 AND e.digest = $16 AND e.expires_at > expiry_now())
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $10, $11, $12::text::jsonb, $13, $14 FROM done
), event AS (
    INSERT INTO gateway_webhook_events AS e (webhook, digest, expires_at)
    SELECT $15, $16, now() + make_interval(secs => $17::float8) FROM done WHERE $16::bytea IS NOT NULL
    ON CONFLICT (webhook, digest) DO UPDATE SET expires_at = greatest(e.expires_at, excluded.expires_at)
), audit AS (
    INSERT INTO gateway_audit (actor, action, reason, scope_id, idempotency_key, record_id, detail)
    SELECT $18, $19, $20, scope_id, idempotency_key, record_id, $21::text::jsonb FROM done WHERE $19::text IS NOT NULL
)
SELECT CASE
    WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: look_again
-- $6: null leaves the count as it is. An event is a look that began now; others began when `take_due` said so. $15: what a look
-- that acts did has ended, so that what `take_due` made of `doubtful_until` is taken back; false: it has not, and a look before that counts
-- for nothing.
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        reconcile_after = greatest(
            now() + make_interval(secs => $5::float8), CASE WHEN NOT $15::boolean THEN r.doubtful_until END
        ),
        reconcile_agreed = CASE WHEN $6::boolean THEN r.reconcile_agreed + 1 WHEN NOT $6::boolean THEN 0 ELSE r.reconcile_agreed END,
        agreed_at = CASE
            WHEN $6::boolean AND $13::bytea IS NULL THEN coalesce(r.looked_at, now())
            WHEN $6::boolean THEN now()
            WHEN NOT $6::boolean THEN NULL
            ELSE r.agreed_at
        END,
        doubtful_until = CASE WHEN $15::boolean AND r.looked_over THEN least(r.doubtful_until, r.looked_at) ELSE r.doubtful_until END
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4 AND NOT h.observed
        AND h.status = 'unknown'
        AND NOT EXISTS (SELECT FROM gateway_webhook_events e WHERE e.webhook = $12 AND e.digest = $13 AND e.expires_at > expiry_now())
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $7, $8, $9::text::jsonb, $10, $11 FROM done
), event AS (
    INSERT INTO gateway_webhook_events AS e (webhook, digest, expires_at)
    SELECT $12, $13, now() + make_interval(secs => $14::float8) FROM done WHERE $13::bytea IS NOT NULL
    ON CONFLICT (webhook, digest) DO UPDATE SET expires_at = greatest(e.expires_at, excluded.expires_at)
)
SELECT CASE
    WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: dead_letter
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        dead_lettered_at = now()
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4 AND NOT h.observed
        AND h.status = 'unknown' AND h.dead_lettered_at IS NULL
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $5, $6, $7::text::jsonb, $8, $9 FROM done
)
SELECT CASE
    WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: attach
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        evidence = CASE
            WHEN r.evidence ->> 'of' = encode(r.owner, 'hex') AND $5::text::jsonb ->> 'body' IS NULL THEN r.evidence
            ELSE $5::text::jsonb || jsonb_build_object('of', encode(r.owner, 'hex'))
        END
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4 AND NOT h.observed
        AND h.status = 'in_progress'
        AND NOT EXISTS (SELECT FROM gateway_webhook_events e WHERE e.webhook = $11 AND e.digest = $12 AND e.expires_at > expiry_now())
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
    SELECT scope_id, idempotency_key, record_id, $6, $7, $8::text::jsonb, $9, $10 FROM done
), event AS (
    INSERT INTO gateway_webhook_events AS e (webhook, digest, expires_at)
    SELECT $11, $12, now() + make_interval(secs => $13::float8) FROM done WHERE $12::bytea IS NOT NULL
    ON CONFLICT (webhook, digest) DO UPDATE SET expires_at = greatest(e.expires_at, excluded.expires_at)
)
SELECT CASE
    WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: seen
-- Locked, since a lock is written: who is told that an event was seen does not tell it again, so it must last.
SELECT FROM gateway_webhook_events WHERE webhook = $1 AND digest = $2 AND expires_at > expiry_now() FOR UPDATE


-- name: remember
INSERT INTO gateway_webhook_events AS e (webhook, digest, expires_at)
VALUES ($1, $2, now() + make_interval(secs => $3::float8))
ON CONFLICT (webhook, digest) DO UPDATE SET expires_at = greatest(e.expires_at, excluded.expires_at)


-- name: note
INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail, actor, reason)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8)


-- name: abandon
-- Due for $2 seconds, and nobody has looked: no gateway has the route any more. $1 are routes that this one has, whose backlog is its own.
WITH left_alone AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT scope_id, idempotency_key
        FROM gateway_records
        WHERE status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed
            AND reconcile_after <= lapse_now() - make_interval(secs => $2::float8) AND route_id <> ALL ($1::text[])
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $3
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        dead_lettered_at = now()
    FROM left_alone l
    WHERE r.scope_id = l.scope_id AND r.idempotency_key = l.idempotency_key
    RETURNING r.scope_id, r.idempotency_key, r.record_id, r.route_id
), history AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, detail)
    SELECT scope_id, idempotency_key, record_id, $4, $5, $6::text::jsonb FROM done
)
SELECT route_id FROM done

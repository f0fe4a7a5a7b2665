-- Accepted work. What is said at the head of reserve.sql holds here.


-- name: accept
-- `parks`: it is not sent now. It becomes pending then, due after `delay`, and `unstarted` takes back the attempt that the reserve counted.
-- Where `per_route` is given, no more than so many may be pending; a record that was made for this request alone is deleted otherwise. Rows
-- of one batch count each other, batches that run at the same time do not.
-- Where an event has said meanwhile that this attempt executed, nothing is parked: it is the release's to say so.
WITH settle AS MATERIALIZED (
    SELECT *
    FROM rows(
        scope_id text, idempotency_key text, owner bytea, reason text, delay float8, parks boolean, unstarted boolean
    ) terms(
        pending_for float8, retention float8, gone_for float8, keep_for float8, per_route bigint, per_principal bigint
    )
), held AS MATERIALIZED (
    SELECT
        s.owner AS settler,
        r.scope_id,
        r.idempotency_key,
        r.route_id,
        r.owner = s.owner AS mine,
        r.status,
        r.attempt,
        r.accepted_at IS NOT NULL AS accepted,
        r.owner = s.owner AND r.status IN ('in_progress', 'unknown') AND r.request_sealed IS NOT NULL AND NOT r.observed
            AND (r.evidence ->> 'of' = encode(s.owner, 'hex')) IS NOT TRUE AS may_park,
        s.parks
    FROM settle s
    JOIN gateway_records r ON r.scope_id = s.scope_id AND r.idempotency_key = s.idempotency_key
    ORDER BY r.scope_id, r.idempotency_key
    FOR UPDATE OF r
), crowded AS MATERIALIZED (
    SELECT h.settler
    FROM (
        SELECT
            settler,
            scope_id,
            route_id,
            row_number() OVER (PARTITION BY route_id ORDER BY scope_id, idempotency_key) AS of_route,
            row_number() OVER (PARTITION BY route_id, scope_id ORDER BY idempotency_key) AS of_principal
        FROM held
        WHERE may_park AND parks
    ) AS h
    JOIN settle s ON s.owner = h.settler AND s.per_route IS NOT NULL AND s.unstarted
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting
        FROM (SELECT FROM gateway_records p WHERE p.route_id = h.route_id AND p.status = 'pending' LIMIT s.per_route) AS few
    ) AS route
    CROSS JOIN LATERAL (
        SELECT count(*) AS waiting
        FROM (
            SELECT FROM gateway_records p WHERE p.route_id = h.route_id AND p.scope_id = h.scope_id AND p.status = 'pending' LIMIT s.per_principal
        ) AS few
    ) AS principal
    WHERE route.waiting + h.of_route > s.per_route OR principal.waiting + h.of_principal > s.per_principal
), refused AS (
    DELETE FROM gateway_records r
    USING held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.settler IN (SELECT settler FROM crowded) AND h.status = 'in_progress' AND h.attempt = 1 AND NOT h.accepted
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = CASE WHEN s.parks THEN 'pending' ELSE r.status END,
        attempt = CASE WHEN s.parks AND s.unstarted THEN r.attempt - 1 ELSE r.attempt END,
        accepted_at = coalesce(r.accepted_at, now()),
        pending_until = coalesce(r.pending_until, now() + make_interval(secs => s.pending_for)),
        retention = make_interval(secs => s.retention),
        gone_for = make_interval(secs => s.gone_for),
        keep_for = make_interval(secs => s.keep_for),
        due_at = CASE WHEN s.parks THEN now() + make_interval(secs => s.delay) END,
        last_error_code = coalesce(s.reason, r.last_error_code),
        locked_until = CASE WHEN NOT s.parks THEN r.locked_until END,
        reconcile_after = CASE WHEN NOT s.parks THEN r.reconcile_after END,
        unknown_since = CASE WHEN NOT s.parks THEN r.unknown_since END,
        dead_lettered_at = CASE WHEN NOT s.parks THEN r.dead_lettered_at END,
        doubtful_until = CASE WHEN NOT s.parks THEN r.doubtful_until END,
        evidence = CASE WHEN NOT s.parks THEN r.evidence END
    FROM held h
    JOIN settle s ON s.owner = h.settler
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.settler NOT IN (SELECT settler FROM crowded)
        AND CASE WHEN s.parks THEN h.may_park ELSE h.mine AND h.status IN ('in_progress', 'unknown') AND NOT h.accepted END
    RETURNING h.settler
)
SELECT
    s.owner AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    CASE
        WHEN d.settler IS NOT NULL THEN 'done'
        WHEN h.settler IS NULL THEN 'missing'
        WHEN c.settler IS NOT NULL THEN 'full'
        WHEN h.mine AND CASE WHEN s.parks THEN h.status = 'pending' ELSE h.accepted END THEN 'already'
        ELSE 'stale'
    END AS transition
FROM settle s
LEFT JOIN held h ON h.settler = s.owner
LEFT JOIN done d ON d.settler = s.owner
LEFT JOIN crowded c ON c.settler = s.owner


-- name: take, take_doubtful
-- Of each principal the record that is due first, then of each the second, and so on. The principals are found by stepping through the index.
-- No more is read of one than could be wanted if all of them had as much; where most have nothing due, less than the limit is taken.
-- $4 are fresh owner tokens. What the terms say is that of the present route.
WITH RECURSIVE principals AS (
    (
        SELECT scope_id
        FROM gateway_records
-- only take
        WHERE route_id = $1 AND status = 'pending'
        ORDER BY scope_id
-- only take_doubtful
        WHERE route_id = $1 AND status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed AND accepted_at IS NOT NULL
            AND reconcile_after <= now() AND reconcile_after <= lapse_now()
        ORDER BY reconcile_after
-- all
        LIMIT 1
    )
-- only take
    UNION ALL
    SELECT (
        SELECT r.scope_id
        FROM gateway_records r
        WHERE r.route_id = $1 AND r.status = 'pending' AND r.scope_id > p.scope_id
        ORDER BY r.scope_id
        LIMIT 1
    )
    FROM principals p
    WHERE p.scope_id IS NOT NULL
-- all
), ahead AS MATERIALIZED (
-- only take
    SELECT of_one.*
    FROM (SELECT scope_id FROM principals WHERE scope_id IS NOT NULL LIMIT 1000) AS p
    CROSS JOIN LATERAL (
        SELECT scope_id, idempotency_key, due_at, row_number() OVER (ORDER BY due_at) AS turn
        FROM (
            SELECT r.scope_id, r.idempotency_key, r.due_at
            FROM gateway_records r
            WHERE r.route_id = $1 AND r.status = 'pending' AND r.scope_id = p.scope_id
                AND r.due_at <= now() AND r.due_at <= lapse_now() AND r.pending_until > lapse_now()
            ORDER BY r.due_at
            LIMIT (SELECT greatest(2, 2 * $2::bigint / greatest(count(*), 1)) FROM principals)
        ) AS first
    ) AS of_one
-- only take_doubtful
    SELECT r.scope_id, r.idempotency_key, r.reconcile_after AS due_at, 1 AS turn
    FROM gateway_records r
    WHERE r.route_id = $1 AND r.status = 'unknown' AND r.dead_lettered_at IS NULL AND NOT r.observed AND r.reconcile_after <= now()
        AND r.reconcile_after <= lapse_now() AND r.accepted_at IS NOT NULL AND EXISTS (SELECT FROM principals)
-- all
    ORDER BY turn, due_at
    LIMIT 1000
), due AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT r.scope_id, r.idempotency_key, a.turn, a.due_at
        FROM ahead a
        JOIN gateway_records r ON r.scope_id = a.scope_id AND r.idempotency_key = a.idempotency_key
-- only take
        WHERE r.status = 'pending' AND r.due_at <= now()
-- only take_doubtful
        WHERE r.status = 'unknown' AND r.dead_lettered_at IS NULL AND r.evidence IS NULL AND r.request_sealed IS NOT NULL
            AND r.created_at > now() - make_interval(secs => $7::float8)
            AND r.accepted_at IS NOT NULL AND coalesce(r.doubtful_until, r.unknown_since + r.max_execution) <= lapse_now()
-- all
        ORDER BY a.turn, a.due_at
        FOR UPDATE OF r SKIP LOCKED
    ) AS first
    LIMIT $2
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY turn, due_at, scope_id, idempotency_key) AS n FROM due
)
UPDATE gateway_records r
SET version = r.version + 1,
    status = 'in_progress',
    owner = ($4::bytea[])[d.n],
    attempt = r.attempt + 1,
    locked_until = now() + make_interval(secs => $3::float8),
    max_execution = make_interval(secs => $5::float8),
    reconcilable = $6,
    reconcile_after = now() + make_interval(secs => $3::float8 + $5::float8),
    reconcile_attempts = 0,
    reconcile_agreed = 0,
    looked_at = NULL,
    looked_over = false,
    agreed_at = NULL,
    doubtful_until = NULL,
    unknown_since = NULL,
    due_at = NULL
FROM numbered d
WHERE r.scope_id = d.scope_id AND r.idempotency_key = d.idempotency_key
RETURNING
    d.n,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    r.scope_id,
    r.idempotency_key,
    r.record_id,
    r.owner,
    r.attempt,
    r.judged,
    r.route_id,
    r.request_id,
    r.request_method,
    r.request_target,
    r.request_fingerprint,
    r.fingerprint_version,
    r.fingerprint_policy,
    r.captured,
    r.correlation,
    r.request_sealed,
    extract(epoch FROM now() - r.accepted_at)::float8 AS waited,
    extract(epoch FROM r.pending_until - now())::float8 AS pending_left


-- name: give_back
-- The key of what was taken is not known, and an index on owners would cost every request: the few that run are looked through.
UPDATE gateway_records r
SET version = r.version + 1,
    status = 'pending',
    attempt = r.attempt - 1,
    last_error_code = 'take_reply_lost',
    locked_until = NULL,
    reconcile_after = NULL,
    due_at = now()
WHERE r.status = 'in_progress' AND r.owner = ANY ($1::bytea[]) AND r.accepted_at IS NOT NULL
RETURNING r.owner


-- name: abandon_pending
WITH over AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT scope_id, idempotency_key
        FROM gateway_records
        WHERE status = 'pending' AND pending_until <= now() AND pending_until <= lapse_now()
        ORDER BY pending_until
        LIMIT 1000
        FOR UPDATE SKIP LOCKED
    ) AS first
    LIMIT $1
)
UPDATE gateway_records r
SET version = r.version + 1,
    status = 'completed',
    response_status_code = $2,
    response_reason = $3,
    response_headers = $4,
    response_body = $5,
    response_body_encoding = $6,
    response_body_length = $7,
    response_body_digest = $8,
    response_schema_version = $9,
    last_error_code = 'abandoned',
    request_sealed = NULL,
    due_at = NULL,
    completed_at = now(),
    expires_at = now() + r.retention
FROM over
WHERE r.scope_id = over.scope_id AND r.idempotency_key = over.idempotency_key
RETURNING r.route_id, r.request_id


-- name: cancel_pending
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = 'completed',
        response_status_code = $4,
        response_reason = $5,
        response_headers = $6,
        response_body = $7,
        response_body_encoding = $8,
        response_body_length = $9,
        response_body_digest = $10,
        response_schema_version = $11,
        last_error_code = 'cancelled',
        request_sealed = NULL,
        due_at = NULL,
        completed_at = now(),
        expires_at = now() + r.retention
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key AND h.record_id = $3 AND h.status = 'pending'
    RETURNING r.version
)
SELECT CASE
    WHEN EXISTS (SELECT FROM done) THEN 'done'
    WHEN EXISTS (SELECT FROM held WHERE record_id = $3 AND last_error_code = 'cancelled' AND status = 'completed') THEN 'already'
    WHEN EXISTS (SELECT FROM held) THEN 'stale'
    ELSE 'missing'
END AS transition


-- name: buried
SELECT
    route_id,
    extract(epoch FROM expires_at - expiry_now())::float8 AS expires_in,
    (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at_us
FROM gateway_tombstones
WHERE digest = $1 AND expires_at > expiry_now()


-- name: standing
SELECT
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    record_id,
    version,
    status,
    attempt,
    (extract(epoch FROM created_at) * 1000000)::bigint AS created_at_us,
    recovery_point,
    coalesce(locked_until > lapse_now(), false) AS lease_live,
    coalesce(expires_at <= expiry_now(), false) AS expired,
    dead_lettered_at IS NOT NULL AS dead_lettered,
    greatest(extract(epoch FROM due_at - lapse_now()), 0)::float8 AS due_in,
    greatest(extract(epoch FROM reconcile_after - lapse_now()), 0)::float8 AS reconcile_in
FROM gateway_records
WHERE scope_id = $1 AND idempotency_key = $2 AND NOT observed

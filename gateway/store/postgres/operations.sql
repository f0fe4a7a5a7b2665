-- What operators read and change. Changes are fenced by record id, version and state, and write their audit line in the same statement.
--
-- `doubtful_until` is told as one fact, from when on *not executed* may be said: of an unknown record that a release without that column
-- made, the end of `max_execution` after its doubt; of one in progress, the instant that it would have if its lease lapsed as it stands.


-- name: list_all, list_pending, list_in_progress, list_unknown, list_dead_letters, list_failed_retryable, list_by_key
-- One page: of the next 2000 candidates in the statement's order those that match, $1 at most; and how many candidates there were, and the last of
-- them, from where the next page goes on. So a page costs the same however rare the matches are. Each row repeats `scanned` and `last_…`;
-- one without a `record_id` is there for them alone. No row: no candidates.
--
-- The bound is a literal: the planner would take a parameter for a tenth of the table, and sort that. `list_all` compares rows at both ends:
-- the planner takes `scope_id >= $3 AND scope_id < $4` for a narrow range, fewer rows than the bound, and sorts a whole table of a million.
--
-- The order is the primary key's, or an instant that an index of the state has (ties by primary key). A scope's ids are one range of the
-- primary key, from $3 to below $4; under an instant's order they are a filter. $2: the route, or null. $8: what else narrows the list down
-- (`_narrowed` in operations.py), or null: no index serves it, so that no write pays for it.
--
-- `list_by_key` steps from one scope id to the next, each found by the primary key, and looks for the key $6 in each.
WITH RECURSIVE
-- only list_by_key
step AS (
    (SELECT scope_id, 1 AS n FROM gateway_records WHERE scope_id > $5 AND scope_id >= $3 AND scope_id < $4 ORDER BY scope_id LIMIT 1)
    UNION ALL
    SELECT following.scope_id, s.n + 1
    FROM step s
    CROSS JOIN LATERAL (
        SELECT r.scope_id FROM gateway_records r WHERE r.scope_id > s.scope_id AND r.scope_id < $4 ORDER BY r.scope_id LIMIT 1
    ) AS following
    WHERE s.n < 2000
),
-- all
scanned AS MATERIALIZED (
    SELECT
-- only list_by_key
        s.scope_id,
        $6::text AS idempotency_key,
        NULL::timestamptz AS at,
        r.record_id IS NOT NULL
            AND ($7::text IS NULL OR CASE $7 WHEN 'dead_letter' THEN r.dead_lettered_at IS NOT NULL ELSE r.status = $7 END) AND
-- only list_all
        r.scope_id,
        r.idempotency_key,
        NULL::timestamptz AS at,
        ($7::text IS NULL OR r.status = $7) AND
-- only list_pending
        r.scope_id,
        r.idempotency_key,
        r.pending_until AS at,
        r.scope_id >= $3 AND r.scope_id < $4 AND
-- only list_in_progress
        r.scope_id,
        r.idempotency_key,
        r.locked_until AS at,
        r.scope_id >= $3 AND r.scope_id < $4 AND
-- only list_unknown
        r.scope_id,
        r.idempotency_key,
        r.unknown_since AS at,
        r.scope_id >= $3 AND r.scope_id < $4 AND
-- only list_dead_letters
        r.scope_id,
        r.idempotency_key,
        r.dead_lettered_at AS at,
        r.scope_id >= $3 AND r.scope_id < $4 AND
-- only list_failed_retryable
        r.scope_id,
        r.idempotency_key,
        r.expires_at AS at,
        r.scope_id >= $3 AND r.scope_id < $4 AND
-- all
        ($2::text IS NULL OR r.route_id = $2)
            AND (
                $8::jsonb IS NULL
                OR (
                    ($8->>'request_id' IS NULL OR r.request_id = $8->>'request_id')
                    AND ($8->>'trace_id' IS NULL OR starts_with(r.request_id, ($8->>'trace_id') || '-'))
                    AND ($8->>'since' IS NULL OR r.created_at >= ($8->>'since')::timestamptz)
                    AND ($8->>'until' IS NULL OR r.created_at < ($8->>'until')::timestamptz)
                    AND (
                        $8->>'from_digest' IS NULL
                        OR substring(
                            sha256(
                                'idempotency-gateway/lookup/1'::bytea || '\x00'::bytea
                                || convert_to(octet_length(r.scope_id) || ':' || r.scope_id || r.idempotency_key, 'UTF8')
                            ) FOR length(decode($8->>'from_digest', 'hex'))
                        ) BETWEEN decode($8->>'from_digest', 'hex') AND decode($8->>'to_digest', 'hex')
                    )
                )
            ) AS matches,
        r.record_id,
        r.version,
        r.status,
        r.route_id,
        r.request_id,
        r.request_method,
        r.attempt,
        r.observed,
        r.last_error_code,
        r.created_at,
        r.locked_until,
        r.unknown_since,
        CASE r.status
            WHEN 'unknown' THEN coalesce(r.doubtful_until, r.unknown_since + r.max_execution)
            WHEN 'in_progress' THEN r.reconcile_after
        END AS doubtful_until,
        r.reconcile_after,
        r.reconcile_attempts,
        r.dead_lettered_at,
        r.completed_at,
        r.expires_at,
        r.response_status_code,
        r.response_body_length,
        r.captured
-- only list_by_key
    FROM step s
    LEFT JOIN LATERAL (
        SELECT * FROM gateway_records g WHERE g.scope_id = s.scope_id AND g.idempotency_key = $6 LIMIT 1
    ) AS r ON true
    ORDER BY s.n
-- only list_all
    FROM gateway_records r
    WHERE (r.scope_id, r.idempotency_key) > ($5, $6) AND r.scope_id >= $3 AND (r.scope_id, r.idempotency_key) < ($4, '')
    ORDER BY r.scope_id, r.idempotency_key
-- only list_pending
    FROM gateway_records r
    WHERE r.status = 'pending' AND (r.pending_until, r.scope_id, r.idempotency_key) > ($7::timestamptz, $5, $6)
    ORDER BY r.pending_until, r.scope_id, r.idempotency_key
-- only list_in_progress
    FROM gateway_records r
    WHERE r.status = 'in_progress' AND (r.locked_until, r.scope_id, r.idempotency_key) > ($7::timestamptz, $5, $6)
    ORDER BY r.locked_until, r.scope_id, r.idempotency_key
-- only list_unknown
    FROM gateway_records r
    WHERE r.status = 'unknown' AND (r.unknown_since, r.scope_id, r.idempotency_key) > ($7::timestamptz, $5, $6)
    ORDER BY r.unknown_since, r.scope_id, r.idempotency_key
-- only list_dead_letters
    FROM gateway_records r
    WHERE r.dead_lettered_at IS NOT NULL AND (r.dead_lettered_at, r.scope_id, r.idempotency_key) > ($7::timestamptz, $5, $6)
    ORDER BY r.dead_lettered_at, r.scope_id, r.idempotency_key
-- only list_failed_retryable
    FROM gateway_records r
    WHERE r.status = 'failed_retryable' AND (r.expires_at, r.scope_id, r.idempotency_key) > ($7::timestamptz, $5, $6)
    ORDER BY r.expires_at, r.scope_id, r.idempotency_key
-- all
    LIMIT 2000
), picked AS (
    SELECT * FROM scanned WHERE matches ORDER BY at, scope_id, idempotency_key LIMIT $1::bigint
), last AS (
    SELECT count(*) OVER () AS scanned, at AS last_at, scope_id AS last_scope_id, idempotency_key AS last_key
    FROM scanned
    ORDER BY at DESC, scope_id DESC, idempotency_key DESC
    LIMIT 1
)
SELECT l.*, p.*
FROM last l
LEFT JOIN picked p ON true
ORDER BY p.at, p.scope_id, p.idempotency_key


-- name: show
-- With an actor ($4) that it was shown is written down, if there was anything to show. The newest 1000 lines of this life's history, oldest
-- first.
WITH audited AS (
    INSERT INTO gateway_audit (actor, action, reason, scope_id, idempotency_key, record_id, detail)
    SELECT $4::text, $5::text, $6::text, scope_id, idempotency_key, record_id, $7::jsonb
    FROM gateway_records
    WHERE scope_id = $1 AND idempotency_key = $2 AND $4::text IS NOT NULL
)
SELECT
    lapse_now() AS at,
    r.scope_id,
    r.idempotency_key,
    r.record_id,
    r.version,
    r.status,
    r.route_id,
    r.request_id,
    r.request_method,
    r.attempt,
    r.observed,
    r.last_error_code,
    r.created_at,
    r.locked_until,
    r.unknown_since,
    CASE r.status
        WHEN 'unknown' THEN coalesce(r.doubtful_until, r.unknown_since + r.max_execution)
        WHEN 'in_progress' THEN r.reconcile_after
    END AS doubtful_until,
    r.reconcile_after,
    r.reconcile_attempts,
    r.dead_lettered_at,
    r.completed_at,
    r.expires_at,
    r.response_status_code,
    r.response_body_length,
    r.request_target,
    r.recovery_point,
    r.recovery_data::text AS recovery_data,
    CASE WHEN r.status = 'completed' THEN coalesce(r.completed_by, 'gateway') END AS completed_by,
    r.captured,
    r.fingerprint_version,
    r.request_fingerprint,
    coalesce(r.evidence ->> 'of' = encode(r.owner, 'hex'), false) AS proved,
    r.response_reason,
    r.response_headers,
    CASE WHEN $3::boolean THEN r.response_body END AS response_body,
    r.response_body_encoding,
    r.response_body_digest,
    r.response_schema_version,
    (
        SELECT json_agg(
            json_build_array((extract(epoch FROM h.at) * 1000000)::bigint, h.source, h.what, h.detail, h.actor, h.reason) ORDER BY h.id
        )
        FROM (SELECT * FROM gateway_history WHERE record_id = r.record_id AND scope_id = r.scope_id ORDER BY id DESC LIMIT 1000) AS h
    ) AS history
FROM gateway_records r
WHERE r.scope_id = $1 AND r.idempotency_key = $2


-- name: operator_requeue
-- Since when it is unknown, and from when on *not executed* may count, stay as they were.
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        dead_lettered_at = NULL,
        requeued_at = now(),
        reconcile_after = now(),
        reconcile_attempts = 0,
        reconcile_agreed = 0,
        agreed_at = NULL,
        looked_at = NULL
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4
        AND h.status = 'unknown' AND h.dead_lettered_at IS NOT NULL
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), remembered AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, actor, reason)
    SELECT scope_id, idempotency_key, record_id, 'operator', 'requeued', $5::text, $7::text FROM done
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, idempotency_key, record_id, $5::text, $6::text, $7::text, $8::jsonb FROM done
)
SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done' WHEN EXISTS (SELECT FROM held) THEN 'stale' ELSE 'missing' END AS transition


-- name: operator_look_now
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        reconcile_after = now()
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4
        AND h.status = 'unknown' AND h.dead_lettered_at IS NULL AND NOT h.observed
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), remembered AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, actor, reason)
    SELECT scope_id, idempotency_key, record_id, 'operator', 'look_now', $5::text, $7::text FROM done
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, idempotency_key, record_id, $5::text, $6::text, $7::text, $8::jsonb FROM done
)
SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done' WHEN EXISTS (SELECT FROM held) THEN 'stale' ELSE 'missing' END AS transition


-- name: operator_release
-- Not against evidence that this attempt was executed: that is the reconciler's. The owner stays, so that its own late answer still counts while
-- nobody has claimed the record. Accepted work waits to be run once more.
WITH held AS MATERIALIZED (
    SELECT *, accepted_at IS NOT NULL AND request_sealed IS NOT NULL AS promised FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        status = CASE WHEN h.promised THEN 'pending' ELSE 'failed_retryable' END,
        last_error_code = 'operator_released',
        judged = true,
        locked_until = NULL,
        reconcile_after = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        doubtful_until = NULL,
        looked_at = NULL,
        agreed_at = NULL,
        reconcile_agreed = 0,
        due_at = CASE WHEN h.promised THEN now() END,
        request_sealed = CASE WHEN h.promised THEN r.request_sealed END,
        evidence = NULL,
        expires_at = CASE WHEN NOT h.promised THEN now() + make_interval(secs => $9::float8) END,
        gone_for = make_interval(secs => $10::float8),
        keep_for = make_interval(secs => $11::float8)
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4
        AND NOT h.observed AND (h.evidence ->> 'of' = encode(h.owner, 'hex')) IS NOT TRUE
        AND (
            (h.status = 'unknown' AND coalesce(h.doubtful_until, h.unknown_since + h.max_execution) <= lapse_now())
            OR (h.status = 'in_progress' AND h.locked_until <= lapse_now() AND h.reconcile_after <= lapse_now())
        )
    RETURNING r.scope_id, r.idempotency_key, r.record_id
), remembered AS (
    INSERT INTO gateway_history (scope_id, idempotency_key, record_id, source, what, actor, reason)
    SELECT scope_id, idempotency_key, record_id, 'operator', 'released', $5::text, $7::text FROM done
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, idempotency_key, record_id, $5::text, $6::text, $7::text, $8::jsonb FROM done
)
SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done' WHEN EXISTS (SELECT FROM held) THEN 'stale' ELSE 'missing' END AS transition


-- name: operator_delete
-- The key is free afterwards, also of the tombstone ($9, its digest) of an earlier life. Locks in the reaper's order: the record, then the
-- tombstone. Of a completed one the life is written down, for entries of it that might come back in Redis.
-- Of the key only its digest is left: archived lives go, history and audit lines keep who did what and when.
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    DELETE FROM gateway_records r
    USING held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4
        AND h.status IN ('completed', 'failed_retryable')
    RETURNING r.scope_id, r.idempotency_key, r.record_id, r.status, r.expires_at
), numbered AS (
    UPDATE gateway_deletions_last l SET number = l.number + 1 FROM done WHERE done.status = 'completed'
    RETURNING l.number, done.record_id, done.expires_at
), noted AS (
    INSERT INTO gateway_deletions (number, record_id, expires_at) SELECT number, record_id, expires_at FROM numbered
), forgotten AS (
    DELETE FROM gateway_tombstones WHERE digest = $9 AND EXISTS (SELECT FROM done)
), hidden AS (
    SELECT scope_id, idempotency_key, record_id, 'sha256:' || encode($9, 'hex') AS digest FROM done
), proposed AS (
    DELETE FROM gateway_proposals p USING hidden n WHERE p.scope_id = n.scope_id AND p.idempotency_key = n.idempotency_key
), archived AS (
    DELETE FROM gateway_records_archive a USING hidden n WHERE a.scope_id = n.scope_id AND a.idempotency_key = n.idempotency_key
), remembered AS (
    UPDATE gateway_history h
    SET idempotency_key = n.digest,
        detail = '{}'
    FROM hidden n
    WHERE h.scope_id = n.scope_id AND h.idempotency_key = n.idempotency_key
), said AS (
    UPDATE gateway_audit a
    SET idempotency_key = n.digest
    FROM hidden n
    WHERE a.scope_id = n.scope_id AND a.idempotency_key = n.idempotency_key
), audited AS (
    INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
    SELECT scope_id, digest, record_id, $5::text, $6::text, $7::text, $8::jsonb FROM hidden
)
SELECT CASE WHEN EXISTS (SELECT FROM done) THEN 'done' WHEN EXISTS (SELECT FROM held) THEN 'stale' ELSE 'missing' END AS transition


-- name: deletions
-- What was deleted after $1, and the number of the last deletion.
SELECT l.number AS last, d.record_id, (extract(epoch FROM d.expires_at) * 1000000)::bigint AS expires_at_us
FROM gateway_deletions_last l
LEFT JOIN gateway_deletions d ON d.number > $1


-- name: purge_deletions
DELETE FROM gateway_deletions
WHERE number IN (
    SELECT number
    FROM gateway_deletions
    WHERE expires_at <= now() AND expires_at <= expiry_now()
    ORDER BY expires_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)


-- name: audited
SELECT id, at, actor, action, reason, scope_id, idempotency_key, record_id, detail FROM gateway_audit WHERE id > $1 ORDER BY id LIMIT $2


-- name: audited_last
SELECT id, at, actor, action, reason, scope_id, idempotency_key, record_id, detail
FROM gateway_audit
WHERE id > $1 AND id < $2
ORDER BY id DESC
LIMIT $3


-- name: write_audit
INSERT INTO gateway_audit (scope_id, idempotency_key, record_id, actor, action, reason, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb)

-- Statements of the release before finding out, as they were. They must go on working beside the present ones.


-- name: reserve
WITH intent AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::text[], $3::bytea[], $4::smallint[], $5::bytea[], $6::bytea[], $7::text[],
        $8::text[], $9::text[], $10::bytea[], $11::float8[], $12::float8[], $13::boolean[], $14::boolean[]
    ) AS i (
        scope_id, idempotency_key, request_fingerprint, fingerprint_version, fingerprint_policy, owner, route_id,
        request_id, request_method, request_target, lease, max_execution, reconcilable, observed
    )
), inserted AS (
    INSERT INTO gateway_records AS r (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, request_method, request_target, locked_until, max_execution, reconcilable, reconcile_after, observed
    )
    SELECT
        scope_id, idempotency_key, gen_random_uuid(), route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        'in_progress', owner, request_method, request_target, now() + make_interval(secs => lease),
        make_interval(secs => max_execution), reconcilable, now() + make_interval(secs => lease + max_execution), observed
    FROM intent AS i
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
    NULL::boolean AS observed,
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
    r.observed,
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
    SELECT octet_length(r.response_headers)::bigint + coalesce(octet_length(r.response_body), 0) > $15::bigint AS answer
) AS large

-- name: reserve_or_gone
WITH intent AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::text[], $3::bytea[], $4::smallint[], $5::bytea[], $6::bytea[], $7::text[],
        $8::text[], $9::text[], $10::bytea[], $11::float8[], $12::float8[], $13::boolean[], $14::boolean[]
        , $16::bytea[]
    ) AS i (
        scope_id, idempotency_key, request_fingerprint, fingerprint_version, fingerprint_policy, owner, route_id,
        request_id, request_method, request_target, lease, max_execution, reconcilable, observed
        , tombstone
    )
), inserted AS (
    INSERT INTO gateway_records AS r (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, request_method, request_target, locked_until, max_execution, reconcilable, reconcile_after, observed
    )
    SELECT
        scope_id, idempotency_key, gen_random_uuid(), route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        'in_progress', owner, request_method, request_target, now() + make_interval(secs => lease),
        make_interval(secs => max_execution), reconcilable, now() + make_interval(secs => lease + max_execution), observed
    FROM intent AS i
    WHERE tombstone IS NULL OR (
        (SELECT true FROM gateway_records AS r WHERE r.scope_id = i.scope_id AND r.idempotency_key = i.idempotency_key) IS NULL
        AND (SELECT true FROM gateway_tombstones AS t WHERE t.digest = i.tombstone AND t.expires_at > now()) IS NULL
    )
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
    NULL::boolean AS observed,
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
    , NULL::text AS tombstone_route
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
    r.observed,
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
    , NULL
FROM intent i
JOIN gateway_records r ON r.scope_id = i.scope_id AND r.idempotency_key = i.idempotency_key
CROSS JOIN LATERAL (
    SELECT octet_length(r.response_headers)::bigint + coalesce(octet_length(r.response_body), 0) > $15::bigint AS answer
) AS large
UNION ALL
SELECT
    i.owner,
    (extract(epoch FROM now()) * 1000000)::bigint,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    extract(epoch FROM t.expires_at - now())::float8,
    (extract(epoch FROM t.expires_at) * 1000000)::bigint,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    false,
    t.route_id
FROM intent i
CROSS JOIN LATERAL (
    SELECT route_id, expires_at FROM gateway_tombstones WHERE digest = i.tombstone AND expires_at > now() LIMIT 1
) AS t
WHERE i.tombstone IS NOT NULL

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
    observed = $16,
    expires_at = NULL,
    gone_for = NULL,
    keep_for = NULL
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
    unknown_since = NULL,
    dead_lettered_at = NULL,
    observed = $16,
    created_at = now(),
    completed_at = NULL,
    expires_at = NULL,
    gone_for = NULL,
    keep_for = NULL
FROM held h
WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    AND h.record_id = $3 AND h.version = $4
    AND (
        (h.status IN ('completed', 'failed_retryable') AND h.expires_at <= now())
        OR (h.observed AND NOT $16 AND h.status <> 'completed')
    )
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
    dead_lettered_at = CASE WHEN NOT r.reconcilable AND NOT r.observed THEN now() END,
    expires_at = CASE WHEN r.observed THEN now() + make_interval(secs => $5::float8) END
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
        $8::bytea[], $9::smallint[], $10::bigint[], $11::bytea[], $12::smallint[], $13::float8[], $14::float8[]
    ) AS s (
        scope_id, idempotency_key, owner, retention, status_code, reason, headers,
        body, body_encoding, body_length, body_digest, schema_version, gone_for, keep_for
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
        expires_at = now() + make_interval(secs => s.retention),
        gone_for = make_interval(secs => s.gone_for),
        keep_for = make_interval(secs => s.keep_for)
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
    FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::float8[], $6::float8[], $7::float8[])
        AS s (scope_id, idempotency_key, owner, reason, retention, gone_for, keep_for)
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
        expires_at = now() + make_interval(secs => s.retention),
        gone_for = make_interval(secs => s.gone_for),
        keep_for = make_interval(secs => s.keep_for)
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
        dead_lettered_at = CASE WHEN NOT r.reconcilable AND NOT r.observed THEN now() END,
        expires_at = CASE WHEN r.observed THEN now() + make_interval(secs => $5::float8) END
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
    dead_lettered_at = CASE WHEN NOT r.reconcilable AND NOT r.observed THEN now() END,
    expires_at = CASE WHEN r.observed THEN now() + make_interval(secs => $2::float8) END
FROM lapsed
WHERE r.scope_id = lapsed.scope_id AND r.idempotency_key = lapsed.idempotency_key
RETURNING r.scope_id, r.idempotency_key, r.route_id, r.request_id, r.attempt

-- name: reap
WITH expired AS MATERIALIZED (
    SELECT
        scope_id,
        idempotency_key,
        expires_at,
        coalesce(octet_length(response_headers), 0)::bigint + coalesce(octet_length(response_body), 0) AS size
    FROM gateway_records
    WHERE expires_at <= now()
        AND (status IN ('completed', 'failed_retryable') OR (status = 'unknown' AND observed))
        AND (gone_for IS NULL OR status <> 'completed' OR created_at <= now() - make_interval(secs => $3::float8))
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), ahead AS (
    SELECT scope_id, idempotency_key, sum(size) OVER (ORDER BY expires_at, scope_id, idempotency_key) - size AS bytes FROM expired
), reaped AS (
    DELETE FROM gateway_records r
    USING ahead
    WHERE r.scope_id = ahead.scope_id AND r.idempotency_key = ahead.idempotency_key AND ahead.bytes < $2::bigint
    RETURNING r.*
), remembered AS (
    INSERT INTO gateway_tombstones AS t (digest, route_id, expires_at)
    SELECT
        sha256(
            'idempotency-gateway/lookup/1\000'::bytea
            || convert_to(octet_length(convert_to(scope_id, 'UTF8')) || ':' || scope_id || idempotency_key, 'UTF8')
        ),
        route_id,
        expires_at + gone_for
    FROM reaped
    WHERE status = 'completed' AND gone_for IS NOT NULL
    ON CONFLICT (digest) DO UPDATE
    SET route_id = excluded.route_id,
        expires_at = greatest(t.expires_at, excluded.expires_at)
), archived AS (
    INSERT INTO gateway_records_archive (
        scope_id, idempotency_key, record_id, version, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, attempt, recovery_point, request_method, request_target, captured, response_status_code, response_reason,
        response_headers, response_body, response_body_encoding, response_body_length, response_body_digest, response_schema_version,
        last_error_code, locked_until, max_execution, reconcilable, reconcile_after, reconcile_attempts, unknown_since, dead_lettered_at,
        observed, created_at, completed_at, expires_at, gone_for, keep_for, archived_reason, purge_at
    )
    SELECT
        scope_id, idempotency_key, record_id, version, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, attempt, recovery_point, request_method, request_target, captured, response_status_code, response_reason,
        response_headers, response_body, response_body_encoding, response_body_length, response_body_digest, response_schema_version,
        last_error_code, locked_until, max_execution, reconcilable, reconcile_after, reconcile_attempts, unknown_since, dead_lettered_at,
        observed, created_at, completed_at, expires_at, gone_for, keep_for, 'expired', expires_at + keep_for
    FROM reaped
    WHERE keep_for IS NOT NULL
    ON CONFLICT (record_id, version) DO NOTHING
)
SELECT count(*) AS reaped FROM reaped

-- name: purge
WITH forgotten AS MATERIALIZED (
    SELECT digest FROM gateway_tombstones WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
), tombstones AS (
    DELETE FROM gateway_tombstones t USING forgotten WHERE t.digest = forgotten.digest RETURNING 1
), kept AS MATERIALIZED (
    SELECT
        record_id,
        version,
        purge_at,
        coalesce(octet_length(response_headers), 0)::bigint + coalesce(octet_length(response_body), 0) AS size
    FROM gateway_records_archive
    WHERE purge_at <= now()
    ORDER BY purge_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), ahead AS (
    SELECT record_id, version, sum(size) OVER (ORDER BY purge_at, record_id, version) - size AS bytes FROM kept
), archived AS (
    DELETE FROM gateway_records_archive a
    USING ahead
    WHERE a.record_id = ahead.record_id AND a.version = ahead.version AND ahead.bytes < $2::bigint
    RETURNING 1
)
SELECT (SELECT count(*) FROM tombstones) + (SELECT count(*) FROM archived) AS purged

-- name: counts
WITH rare AS (
    SELECT
        (SELECT count(*) FROM gateway_records WHERE status = 'in_progress') AS in_progress,
        (SELECT count(*) FROM gateway_records WHERE status = 'failed_retryable') AS failed_retryable,
        (SELECT count(*) FROM gateway_records WHERE status = 'unknown' AND NOT observed) AS unknown,
        (SELECT count(*) FROM gateway_records WHERE dead_lettered_at IS NOT NULL AND NOT observed) AS dead_letters,
        (SELECT min(unknown_since) FROM gateway_records WHERE status = 'unknown' AND NOT observed) AS oldest,
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

-- name: scopes
SELECT scope, principal, key_settings, secret_check, routes FROM gateway_scopes ORDER BY scope

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

-- name: register_scopes
INSERT INTO gateway_scopes (scope, principal, key_settings, secret_check, routes)
SELECT *
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS claim (scope, principal, key_settings, secret_check, routes)
ON CONFLICT (scope) DO UPDATE
SET principal = excluded.principal,
    key_settings = excluded.key_settings,
    secret_check = excluded.secret_check,
    routes = excluded.routes,
    changed_at = now()

-- name: register_policies
INSERT INTO gateway_fingerprint_policies (digest, version, policy)
SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::text[]) AS claim (digest, version, policy)
ON CONFLICT (digest) DO NOTHING

-- name: fingerprint_policy
SELECT version, policy FROM gateway_fingerprint_policies WHERE digest = $1

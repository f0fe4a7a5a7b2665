-- Every statement that touches a record, named. A state change is one statement with its fence in a WHERE clause.
--
-- now() is the start of the statement's transaction, hence never before the moment at which the holder read its own clock and
-- sent the statement: `locked_until` = now() + lease lies at or after the instant up to which the holder trusts its lease. And
-- a lapse or an expiry judged by now() is never judged too early, however long the statement waited for a lock.
--
-- Unless the clock was set. `lapse_now()` and `expiry_now()` are now(), or the limits that the sender gives where those are earlier (`queries.py`
-- makes them a last parameter): what is judged by the clock is never judged beyond what the sender believes of it. Where an index is to find
-- the rows, now() is asked beside them, since of a parameter the planner would assume a third of the table.
--
-- `rows(…) terms(…)` stand for as many rows as a batch has, and for what these have in common (`row_statements.py`).
--
-- A section with several names is as many statements: lines from `-- only NAME, …` to `-- all`, or to the next `-- only`, are part of the
-- named ones alone.
--
-- Updates lock their rows first, found by the primary key alone: a partial index on the state, tempting when the planner believes it
-- small, is long when every lease lapses at once. A batch locks in primary key order, so that overlapping batches wait for each other
-- and never in a circle. What the fence reads (`held`) is the row as locked: its latest version, not the one in the snapshot.
--
-- What takes `LIMIT $n` rows takes them of `LIMIT 1000`, a literal: of a parameter the planner assumes a tenth of what there is, and would
-- read the whole table for a few rows. Rows are read, and locked, as the outer limit asks for them.


-- name: reserve, reserve_or_gone, reserve_alone
-- Insert each intent, or report the record in its way (`found`, the columns of `find` in its order). A row with nothing found is a lease won.
-- An intent that got no row at all lost a race to an insert that this statement's snapshot does not show: ask again.
-- What was found is one value, so that a lease, the common answer, has four.
-- An answer is left out (`body_left_out`) when its headers and its body, as stored, have more than $1 bytes together, so that a batch of
-- replays has a bounded size. Their lengths are known without reading them.
--
-- `reserve_or_gone` is for batches in which somebody asks for tombstones, so that the others pay nothing for them. A row may have a
-- `tombstone` then. `digest` is that of the tombstone to look for, null for an intent that does not ask. One that asks is inserted only
-- if the snapshot shows neither a record nor a tombstone. The reaper turns the one into the other in one statement, so every snapshot shows
-- one of them; an insert that relied on its conflict alone would wait for the reaper's commit, and then find the key free while its snapshot
-- does not show the tombstone.
--
-- `reserve_alone` is for one intent that asks for no tombstones, and inserts it: nearly every key is new, and a plan that may have to tell
-- of a record takes the server half as long again. Where it inserts nothing, `reserve` says why.
WITH
-- only reserve_alone
intent AS NOT MATERIALIZED (
-- only reserve, reserve_or_gone
intent AS MATERIALIZED (
-- all
    SELECT *
    FROM rows(
        scope_id text, idempotency_key text, owner bytea, request_fingerprint bytea, request_id text, request_method text,
        request_target bytea, captured text, correlation text, sealed bytea
-- only reserve_or_gone
        , digest bytea
-- all
    ) terms(
        route_id text, fingerprint_version smallint, fingerprint_policy bytea, lease float8, max_execution float8, reconcilable boolean,
        observed boolean
    )
)
-- only reserve, reserve_or_gone
, inserted AS (
-- all
    INSERT INTO gateway_records AS r (
        scope_id, idempotency_key, record_id, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        status, owner, request_method, request_target, locked_until, max_execution, reconcilable, reconcile_after, observed,
        captured, correlation, request_sealed
    )
    SELECT
        scope_id, idempotency_key, encode(substring(sha256(owner) FOR 16), 'hex')::uuid, route_id, request_id, request_fingerprint, fingerprint_version, fingerprint_policy,
        'in_progress', owner, request_method, request_target, now() + make_interval(secs => lease),
        make_interval(secs => max_execution), reconcilable, now() + make_interval(secs => lease + max_execution), observed,
        captured::jsonb, correlation, sealed
    FROM intent AS i
-- only reserve_or_gone
    WHERE digest IS NULL OR (
        (SELECT true FROM gateway_records AS r WHERE r.scope_id = i.scope_id AND r.idempotency_key = i.idempotency_key) IS NULL
        AND (SELECT true FROM gateway_tombstones AS t WHERE t.digest = i.digest AND t.expires_at > expiry_now()) IS NULL
    )
-- only reserve, reserve_or_gone
    ORDER BY scope_id COLLATE "C", idempotency_key COLLATE "C"
-- all
    ON CONFLICT (scope_id, idempotency_key) DO NOTHING
-- only reserve_alone
    RETURNING r.owner AS asked_by, (extract(epoch FROM now()) * 1000000)::bigint AS now_us, r.record_id, NULL AS found
-- only reserve, reserve_or_gone
    RETURNING r.owner, r.record_id
)
SELECT
    owner AS asked_by,
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    record_id,
    NULL::record AS found
-- only reserve_or_gone
    , NULL::record AS tombstone
-- only reserve, reserve_or_gone
FROM inserted
UNION ALL
SELECT
    i.owner,
    (extract(epoch FROM now()) * 1000000)::bigint,
    NULL,
    ROW(
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
        extract(epoch FROM r.locked_until - lapse_now())::float8,
        extract(epoch FROM r.expires_at - expiry_now())::float8,
        (extract(epoch FROM r.expires_at) * 1000000)::bigint,
        r.dead_lettered_at IS NOT NULL,
        extract(epoch FROM r.reconcile_after - lapse_now())::float8,
        r.last_error_code,
        r.status = 'unknown' AND coalesce(r.doubtful_until, r.unknown_since + r.max_execution) <= lapse_now(),
        extract(epoch FROM now() - r.created_at)::float8,
        r.judged,
        r.accepted_at IS NOT NULL,
        extract(epoch FROM r.due_at - lapse_now())::float8,
        r.response_status_code,
        r.response_reason,
        CASE WHEN NOT large.answer THEN r.response_headers END,
        CASE WHEN NOT large.answer THEN r.response_body END,
        r.response_body_encoding,
        r.response_body_length,
        r.response_body_digest,
        r.response_schema_version,
        large.answer
    )
-- only reserve_or_gone
    , NULL
-- only reserve, reserve_or_gone
FROM intent i
JOIN gateway_records r ON r.scope_id = i.scope_id AND r.idempotency_key = i.idempotency_key
CROSS JOIN LATERAL (
    SELECT octet_length(r.response_headers)::bigint + coalesce(octet_length(r.response_body), 0) > $1::bigint AS answer
) AS large
-- only reserve_or_gone
UNION ALL
SELECT
    i.owner,
    (extract(epoch FROM now()) * 1000000)::bigint,
    NULL,
    NULL,
    ROW(t.route_id, extract(epoch FROM t.expires_at - expiry_now())::float8, (extract(epoch FROM t.expires_at) * 1000000)::bigint)
FROM intent i
CROSS JOIN LATERAL (
    SELECT route_id, expires_at FROM gateway_tombstones WHERE digest = i.digest AND expires_at > expiry_now() LIMIT 1
) AS t
WHERE i.digest IS NOT NULL
-- all


-- name: find
-- An answer of more than $3 bytes is left out, as `reserve` does.
SELECT
    (extract(epoch FROM now()) * 1000000)::bigint AS now_us,
    record_id,
    version,
    status,
    request_fingerprint,
    fingerprint_version,
    fingerprint_policy,
    owner,
    observed,
    attempt,
    request_id,
    extract(epoch FROM locked_until - lapse_now())::float8 AS lease_left,
    extract(epoch FROM expires_at - expiry_now())::float8 AS expires_in,
    (extract(epoch FROM expires_at) * 1000000)::bigint AS expires_at_us,
    dead_lettered_at IS NOT NULL AS dead_lettered,
    extract(epoch FROM reconcile_after - lapse_now())::float8 AS reconcile_in,
    last_error_code,
    status = 'unknown' AND coalesce(doubtful_until, unknown_since + max_execution) <= lapse_now() AS doubt_over,
    extract(epoch FROM now() - created_at)::float8 AS born_ago,
    judged,
    accepted_at IS NOT NULL AS accepted,
    extract(epoch FROM due_at - lapse_now())::float8 AS due_in,
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
-- Claim a `failed_retryable` record: the same record life, attempt + 1. The record keeps its own fingerprint, under whose policy
-- the request was judged the same; where the claimer's is comparable it must be equal, too.
--
-- With $20 (`on_unknown: reexecute`) also one in doubt, once the attempt before has surely finished. One with evidence is the reconciler's.
-- A doubt that was accepted stays so, for as long as it was: whoever was promised the execution is owed it, should this attempt end in doubt.
WITH held AS MATERIALIZED (
    SELECT *, status = 'unknown' AND accepted_at IS NOT NULL AND request_sealed IS NOT NULL AS promised FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
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
    reconcile_attempts = 0,
    reconcile_agreed = 0,
    looked_at = NULL,
    looked_over = false,
    agreed_at = NULL,
    doubtful_until = NULL,
    unknown_since = NULL,
    dead_lettered_at = NULL,
    observed = $16,
    captured = $17::text::jsonb,
    correlation = $18,
    request_sealed = CASE WHEN h.promised THEN coalesce($19, h.request_sealed) ELSE $19 END,
    evidence = NULL,
    accepted_at = CASE WHEN h.promised THEN now() END,
    pending_until = CASE WHEN h.promised THEN now() + (h.pending_until - h.accepted_at) END,
    retention = CASE WHEN h.promised THEN h.retention END,
    expires_at = NULL,
    gone_for = CASE WHEN h.promised THEN h.gone_for END,
    keep_for = CASE WHEN h.promised THEN h.keep_for END
FROM held h
WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
    AND h.record_id = $3 AND h.version = $4
    AND (
        (h.status = 'failed_retryable' AND h.expires_at > expiry_now())
        OR (
            $20 AND h.status = 'unknown' AND h.dead_lettered_at IS NULL AND NOT h.observed AND h.evidence IS NULL
            AND coalesce(h.doubtful_until, h.unknown_since + h.max_execution) <= lapse_now()
        )
    )
    AND (h.request_fingerprint = $6 OR h.fingerprint_version <> $7::smallint OR h.fingerprint_policy <> $8)
RETURNING r.record_id, r.attempt, (extract(epoch FROM now()) * 1000000)::bigint AS now_us


-- name: new_life
-- Claim an expired record, or take over an observed one that is not completed (never for an intent that observes): a new record life in the
-- same row, attempt 1. An expired life whose route keeps such goes to the archive in the same statement, as the reaper would have put it there.
WITH held AS MATERIALIZED (
    SELECT * FROM gateway_records WHERE scope_id = $1 AND idempotency_key = $2 FOR UPDATE
), done AS (
    UPDATE gateway_records r
    SET version = r.version + 1,
        record_id = encode(substring(sha256($5) FOR 16), 'hex')::uuid,
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
        recovery_data = NULL,
        completed_by = NULL,
        captured = $17::text::jsonb,
        correlation = $18,
        request_sealed = $19,
        evidence = NULL,
        response_status_code = NULL,
        response_reason = NULL,
        response_headers = NULL,
        response_body = NULL,
        response_body_encoding = 0,
        response_body_length = NULL,
        response_body_digest = NULL,
        response_schema_version = NULL,
        last_error_code = NULL,
        judged = false,
        locked_until = now() + make_interval(secs => $13::float8),
        max_execution = make_interval(secs => $14::float8),
        reconcilable = $15,
        reconcile_after = now() + make_interval(secs => $13::float8 + $14::float8),
        reconcile_attempts = 0,
        reconcile_agreed = 0,
        looked_at = NULL,
        looked_over = false,
        agreed_at = NULL,
        doubtful_until = NULL,
        unknown_since = NULL,
        dead_lettered_at = NULL,
        observed = $16,
        accepted_at = NULL,
        pending_until = NULL,
        due_at = NULL,
        retention = NULL,
        created_at = now(),
        completed_at = NULL,
        expires_at = NULL,
        gone_for = NULL,
        keep_for = NULL
    FROM held h
    WHERE r.scope_id = h.scope_id AND r.idempotency_key = h.idempotency_key
        AND h.record_id = $3 AND h.version = $4
        AND (
            (h.status IN ('completed', 'failed_retryable') AND h.expires_at <= expiry_now())
            OR (h.observed AND NOT $16 AND h.status <> 'completed')
        )
    RETURNING r.record_id, r.attempt, (extract(epoch FROM now()) * 1000000)::bigint AS now_us
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
    FROM held
    WHERE EXISTS (SELECT FROM done) AND keep_for IS NOT NULL AND expires_at <= expiry_now() AND expires_at + keep_for > expiry_now()
    ON CONFLICT DO NOTHING
)
SELECT record_id, attempt, now_us FROM done


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

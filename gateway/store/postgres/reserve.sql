-- How a request comes by its lease, or by the record in its way; and what holds for every statement that touches a record. A state change is
-- one statement with its fence in a WHERE clause.
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

-- One CHECK constraint of records, and what gateways share about operators. One file, since gateways of the release before stay ready on a
-- schema that is one migration ahead of theirs, and no further (`migrate.READABLE_AHEAD`).
--
-- The constraint is in the place of twelve, and says the same (tests/store/postgres/test_release_before_checks.py compares them). Postgres
-- reads the expression of each constraint anew for each statement: the twelve took 80 µs, more than the rest of a short insert. The body of a
-- function of PL/pgSQL is compiled once in a session, and a call of it is short to read: 30 µs. It calls nothing but what Postgres brings.
--
-- Two tables are new. Verdicts that wait for a second person, and sessions of browsers that ended before their time:
--
--   gateway_proposals        one verdict for each record at most. It is about this life, attempt and state of the record; the answer of an
--                            *executed* is kept, packed and sealed as the record would keep it.
--   gateway_ended_sessions   digests of their names, until their cookies would have ended by themselves. What began before `ended_at` has ended.
--
-- Safe on a live table, and for the release before. Nothing is rewritten or read: NOT VALID spares the constraint its scan, and rows that
-- are there kept the twelve. `ALTER TABLE gateway_records VALIDATE CONSTRAINT gateway_records_sound` reads them beside the traffic, for those
-- who want it marked as valid.
--
-- What is said in 0002 of the wait for the lock on gateway_records holds here.

SET LOCAL lock_timeout = '1500ms';

CREATE FUNCTION gateway_record_is_sound(
    status text, owner bytea, request_fingerprint bytea, version bigint, attempt integer, observed boolean, max_execution interval,
    locked_until timestamptz, reconcile_after timestamptz, reconcile_attempts integer, unknown_since timestamptz,
    dead_lettered_at timestamptz, last_error_code text, accepted_at timestamptz, pending_until timestamptz, due_at timestamptz,
    retention interval, request_sealed bytea, completed_at timestamptz, expires_at timestamptz, response_status_code smallint,
    response_reason bytea, response_headers bytea, response_body bytea, response_body_encoding smallint, response_body_length bigint,
    response_body_digest bytea, response_schema_version smallint
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
$$ BEGIN
    RETURN octet_length(owner) = 16
        AND octet_length(request_fingerprint) = 32
        AND version >= 1
        AND (attempt >= 1 OR (attempt = 0 AND accepted_at IS NOT NULL AND status IN ('pending', 'completed')))
        AND reconcile_attempts >= 0
        AND max_execution >= interval '0'
        AND (accepted_at IS NULL OR (pending_until IS NOT NULL AND retention IS NOT NULL))
        -- an answer, with those that are completed alone
        AND CASE WHEN status = 'completed' THEN
            num_nulls(
                completed_at, response_status_code, response_reason, response_headers, response_body_length, response_body_digest,
                response_schema_version
            ) = 0
            AND (response_schema_version <> 2 OR (response_body_encoding > 0 AND response_body IS NOT NULL))
        ELSE
            num_nonnulls(
                completed_at, response_status_code, response_reason, response_headers, response_body, response_body_length,
                response_body_digest, response_schema_version
            ) = 0
        END
        -- what else each state has, and what it has not
        AND CASE status
            WHEN 'in_progress' THEN
                num_nulls(locked_until, reconcile_after) = 0 AND num_nonnulls(unknown_since, dead_lettered_at, due_at, expires_at) = 0
            WHEN 'completed' THEN
                expires_at IS NOT NULL
                AND num_nonnulls(locked_until, reconcile_after, unknown_since, dead_lettered_at, due_at) = 0
            WHEN 'failed_retryable' THEN
                expires_at IS NOT NULL
                AND num_nonnulls(locked_until, reconcile_after, unknown_since, dead_lettered_at, due_at) = 0
            WHEN 'unknown' THEN
                num_nulls(unknown_since, reconcile_after, last_error_code) = 0
                AND num_nonnulls(locked_until, due_at) = 0
                AND (expires_at IS NULL OR observed)
            WHEN 'pending' THEN
                num_nulls(due_at, accepted_at, request_sealed) = 0 AND NOT observed
                AND num_nonnulls(locked_until, reconcile_after, unknown_since, dead_lettered_at, expires_at) = 0
            ELSE false
        END;
END $$;

-- The constraint calls it with the rights of whoever writes: also where default privileges give nobody a right to new functions.
GRANT EXECUTE ON FUNCTION gateway_record_is_sound TO PUBLIC;

CREATE TABLE gateway_proposals (
    scope_id               text COLLATE "C" NOT NULL,
    idempotency_key        text COLLATE "C" NOT NULL,
    proposal_id            uuid NOT NULL,
    record_id              uuid NOT NULL,
    attempt                integer NOT NULL,
    status                 text NOT NULL,
    change                 text NOT NULL CHECK (change IN ('executed', 'not_executed', 'release')),
    proposer               text NOT NULL,
    identity               text NOT NULL,
    reason                 text NOT NULL,
    retention              float8,
    proposed_at            timestamptz NOT NULL DEFAULT now(),
    expires_at             timestamptz NOT NULL,
    response_status_code   smallint,
    response_reason        bytea,
    response_headers       bytea,
    response_body          bytea,
    response_body_encoding smallint,
    response_body_length   bigint,
    response_body_digest   bytea,
    response_schema_version smallint,

    PRIMARY KEY (scope_id, idempotency_key),

    CONSTRAINT gateway_proposals_answer CHECK ((change = 'executed') = (response_status_code IS NOT NULL))
);
CREATE INDEX gateway_proposals_waiting ON gateway_proposals (proposed_at, proposal_id);

CREATE TABLE gateway_ended_sessions (
    digest     bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    ended_at   bigint NOT NULL, -- seconds since the epoch, by the clock that the cookies of its gateway have
    expires_at timestamptz NOT NULL
);

ALTER TABLE gateway_records
    DROP CONSTRAINT gateway_records_shape,
    DROP CONSTRAINT gateway_records_status,
    DROP CONSTRAINT gateway_records_in_progress,
    DROP CONSTRAINT gateway_records_completed,
    DROP CONSTRAINT gateway_records_unknown,
    DROP CONSTRAINT gateway_records_response,
    DROP CONSTRAINT gateway_records_lease,
    DROP CONSTRAINT gateway_records_reconcile,
    DROP CONSTRAINT gateway_records_doubt,
    DROP CONSTRAINT gateway_records_expiry,
    DROP CONSTRAINT gateway_records_packed,
    DROP CONSTRAINT gateway_records_pending,
    ADD CONSTRAINT gateway_records_sound CHECK (
        gateway_record_is_sound(
            status, owner, request_fingerprint, version, attempt, observed, max_execution, locked_until, reconcile_after, reconcile_attempts,
            unknown_since, dead_lettered_at, last_error_code, accepted_at, pending_until, due_at, retention, request_sealed, completed_at,
            expires_at, response_status_code, response_reason, response_headers, response_body, response_body_encoding,
            response_body_length, response_body_digest, response_schema_version
        )
    ) NOT VALID;

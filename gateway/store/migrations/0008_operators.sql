-- What gateways share about operators: verdicts that wait for a second person, and sessions of browsers that ended before their time.
--
--   gateway_proposals        one verdict for each record at most. It is about this life, attempt and state of the record; the answer of an
--                            *executed* is kept, packed and sealed as the record would keep it.
--   gateway_ended_sessions   digests of their names, until their cookies would have ended by themselves. What began before `ended_at` has ended.
--
-- Both tables are new and touch no other: gateways of the release before do not know them, and need not.

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

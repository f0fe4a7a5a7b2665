-- Records, the registry of scopes and fingerprint policies, and the archive.
--
-- Keys compare bytewise (COLLATE "C"): batches are sorted in one order everywhere, whatever the database's locale, and a
-- scope's records are one range of the primary key.
--
-- Instants are the database's clock. `lease`, retention and expiry are never computed from a client's clock.

CREATE TABLE gateway_records (
    scope_id                text COLLATE "C" NOT NULL,
    idempotency_key         text COLLATE "C" NOT NULL,
    record_id               uuid NOT NULL,
    version                 bigint NOT NULL DEFAULT 1,
    route_id                text NOT NULL,
    request_id              text NOT NULL,
    request_fingerprint     bytea NOT NULL,
    fingerprint_version     smallint NOT NULL,
    fingerprint_policy      bytea NOT NULL,
    status                  text NOT NULL,
    owner                   bytea NOT NULL,
    attempt                 integer NOT NULL DEFAULT 1,
    recovery_point          text,
    request_method          text NOT NULL,
    request_target          bytea NOT NULL,
    captured                jsonb,
    response_status_code    smallint,
    response_reason         bytea,
    response_headers        bytea,
    response_body           bytea,
    response_body_length    bigint,
    response_body_digest    bytea,
    response_schema_version smallint,
    last_error_code         text,
    locked_until            timestamptz,
    max_execution           interval NOT NULL,
    reconcilable            boolean NOT NULL DEFAULT false,
    reconcile_after         timestamptz,
    reconcile_attempts      integer NOT NULL DEFAULT 0,
    unknown_since           timestamptz,
    dead_lettered_at        timestamptz,
    observed                boolean NOT NULL DEFAULT false,
    created_at              timestamptz NOT NULL DEFAULT now(),
    completed_at            timestamptz,
    expires_at              timestamptz,

    PRIMARY KEY (scope_id, idempotency_key),

    CONSTRAINT gateway_records_shape CHECK (
        octet_length(owner) = 16
        AND octet_length(request_fingerprint) = 32
        AND version >= 1
        AND attempt >= 1
        AND reconcile_attempts >= 0
        AND max_execution >= interval '0'
    ),
    CONSTRAINT gateway_records_status CHECK (status IN ('in_progress', 'completed', 'failed_retryable', 'unknown')),
    CONSTRAINT gateway_records_in_progress CHECK (
        status <> 'in_progress' OR (locked_until IS NOT NULL AND reconcile_after IS NOT NULL)
    ),
    CONSTRAINT gateway_records_completed CHECK (
        status <> 'completed' OR (
            completed_at IS NOT NULL
            AND response_status_code IS NOT NULL
            AND response_reason IS NOT NULL
            AND response_headers IS NOT NULL
            AND response_body_length IS NOT NULL
            AND response_body_digest IS NOT NULL
            AND response_schema_version IS NOT NULL
        )
    ),
    CONSTRAINT gateway_records_unknown CHECK (
        status <> 'unknown' OR (unknown_since IS NOT NULL AND reconcile_after IS NOT NULL AND last_error_code IS NOT NULL)
    ),
    CONSTRAINT gateway_records_response CHECK (
        status = 'completed' OR (
            completed_at IS NULL
            AND response_status_code IS NULL
            AND response_reason IS NULL
            AND response_headers IS NULL
            AND response_body IS NULL
            AND response_body_length IS NULL
            AND response_body_digest IS NULL
            AND response_schema_version IS NULL
        )
    ),
    CONSTRAINT gateway_records_lease CHECK ((status = 'in_progress') = (locked_until IS NOT NULL)),
    CONSTRAINT gateway_records_reconcile CHECK (status IN ('in_progress', 'unknown') OR reconcile_after IS NULL),
    CONSTRAINT gateway_records_doubt CHECK (status = 'unknown' OR (unknown_since IS NULL AND dead_lettered_at IS NULL)),
    CONSTRAINT gateway_records_expiry CHECK ((status IN ('completed', 'failed_retryable')) = (expires_at IS NOT NULL))
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    toast.autovacuum_vacuum_scale_factor = 0.02
);

-- Answers are often content-coded already, and compressing costs the one server that all gateways share. An answer below
-- about 2 kB stays in the row either way.
ALTER TABLE gateway_records ALTER COLUMN response_body SET STORAGE EXTERNAL;

CREATE INDEX gateway_records_lapsing ON gateway_records (locked_until) WHERE status = 'in_progress';
CREATE INDEX gateway_records_expiring ON gateway_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX gateway_records_due ON gateway_records (reconcile_after) WHERE status = 'unknown' AND dead_lettered_at IS NULL;

-- For the gauges alone; each holds rare rows, so that it costs the common path nothing.
CREATE INDEX gateway_records_doubtful ON gateway_records (unknown_since) WHERE status = 'unknown';
CREATE INDEX gateway_records_dead ON gateway_records (dead_lettered_at) WHERE dead_lettered_at IS NOT NULL;
CREATE INDEX gateway_records_retryable ON gateway_records (expires_at) WHERE status = 'failed_retryable';

CREATE TABLE gateway_records_archive (
    LIKE gateway_records INCLUDING STORAGE,
    archived_at     timestamptz NOT NULL DEFAULT now(),
    archived_reason text NOT NULL,
    PRIMARY KEY (record_id, version)
);

CREATE TABLE gateway_scopes (
    scope         text COLLATE "C" PRIMARY KEY,
    principal     text NOT NULL,
    key_settings  text NOT NULL,
    secret_check  text NOT NULL,
    routes        text NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now(),
    changed_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE gateway_fingerprint_policies (
    digest        bytea PRIMARY KEY,
    version       smallint NOT NULL,
    policy        text NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now()
);

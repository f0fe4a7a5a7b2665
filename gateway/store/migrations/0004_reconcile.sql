-- Finding out what an unknown attempt did: what is kept with a record for it, its history, webhooks' events, operators' audit lines.
--
--   captured            (there since 0001) values of the original request, by name; `key` is the key as the upstream saw it.
--   correlation         the captured value by which the route's webhook finds the record.
--   request_sealed      the original request, encrypted, where the route resends it. Gone as soon as the record ends.
--   evidence            what a webhook said while the attempt still ran; `of` in it is that attempt's owner token, in hex.
--   doubtful_until      from when on *not executed* may count: the upstream has surely finished. Later than `reconcile_after` was when a look
--                       acted since. Null in doubts of the release before, for which `unknown_since` + `max_execution` stands.
--   looked_at           when the last look began, and `looked_over` whether that was after `doubtful_until`, which a look that acts moves.
--   agreed_at           when the last look that said *not executed* began.
--   reconcile_agreed    how many looks in a row said *not executed*.
--   requeued_at         when an operator had it looked at from the beginning: its looks have that age, its doubt does not.
--
-- A line of history is looked at again at `purge_after`, and deleted if its record is gone.
--
-- Safe on a live table, and for the release before, which leaves the new columns as it finds them. What they say of an earlier doubt would
-- let a later one end too early: a trigger clears it when a new attempt begins, whichever release begins it. In a row that the release before
-- takes over, `correlation` may be of an earlier life, which its `captured` (null) tells. What it leaves in doubt is a dead letter, since it
-- knows no probe.
--
-- The two indexes are of rows that are rare or do not exist yet, but to build them the table is read while all wait. That is done here only if
-- the table has at most 64 MB; a larger one is refused, unchanged, until this was done, with traffic going on:
--
--   ALTER TABLE gateway_records ADD COLUMN IF NOT EXISTS correlation text COLLATE "C";
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_records_due_by_route ON gateway_records (route_id, reconcile_after)
--       WHERE status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed;
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_records_correlated ON gateway_records (correlation) WHERE correlation IS NOT NULL;
--
-- What is said in 0002 of the wait for the lock on gateway_records, which comes last, holds here.

SET LOCAL lock_timeout = '1500ms';

DO $$
DECLARE
    wanted text;
    valid boolean;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['gateway_records_due_by_route', 'gateway_records_correlated'] LOOP
        valid := (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(wanted));
        IF NOT valid THEN
            RAISE EXCEPTION 'the index % is invalid: its building was cut short; drop it, and build it again', wanted
                USING ERRCODE = 'object_not_in_prerequisite_state';
        ELSIF valid IS NULL AND pg_relation_size('gateway_records') > 64 * 1024 * 1024 THEN
            RAISE EXCEPTION 'the table gateway_records is large: build the index % beforehand, as the head of the file says', wanted
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    END LOOP;
END
$$;

ALTER TABLE gateway_records_archive
    ADD COLUMN correlation text COLLATE "C",
    ADD COLUMN request_sealed bytea,
    ADD COLUMN evidence jsonb,
    ADD COLUMN doubtful_until timestamptz,
    ADD COLUMN looked_at timestamptz,
    ADD COLUMN looked_over boolean NOT NULL DEFAULT false,
    ADD COLUMN agreed_at timestamptz,
    ADD COLUMN requeued_at timestamptz,
    ADD COLUMN reconcile_agreed smallint NOT NULL DEFAULT 0;

CREATE TABLE gateway_history (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope_id        text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    record_id       uuid NOT NULL,
    at              timestamptz NOT NULL DEFAULT now(),
    source          text NOT NULL,
    what            text NOT NULL,
    detail          jsonb NOT NULL DEFAULT '{}',
    actor           text,
    reason          text,
    purge_after     timestamptz NOT NULL DEFAULT now() + interval '90 days'
);
CREATE INDEX gateway_history_record ON gateway_history (record_id, id);
CREATE INDEX gateway_history_aging ON gateway_history (purge_after);

CREATE TABLE gateway_webhook_events (
    webhook    text NOT NULL,
    digest     bytea NOT NULL,
    expires_at timestamptz NOT NULL,

    PRIMARY KEY (webhook, digest),

    CONSTRAINT gateway_webhook_events_shape CHECK (octet_length(digest) = 32)
);
CREATE INDEX gateway_webhook_events_expiring ON gateway_webhook_events (expires_at);

-- Append-only: no statement of the gateway's updates or deletes here, and a trigger says so to everybody else.
CREATE TABLE gateway_audit (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              timestamptz NOT NULL DEFAULT now(),
    actor           text NOT NULL,
    action          text NOT NULL,
    reason          text NOT NULL,
    scope_id        text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    record_id       uuid NOT NULL,
    detail          jsonb NOT NULL DEFAULT '{}'
);
CREATE FUNCTION gateway_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'gateway_audit is append-only'; END $$;
CREATE TRIGGER gateway_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON gateway_audit
    FOR EACH STATEMENT EXECUTE FUNCTION gateway_audit_refuse();

ALTER TABLE gateway_records
    ADD COLUMN IF NOT EXISTS correlation text COLLATE "C",
    ADD COLUMN request_sealed bytea,
    ADD COLUMN evidence jsonb,
    ADD COLUMN doubtful_until timestamptz,
    ADD COLUMN looked_at timestamptz,
    ADD COLUMN looked_over boolean NOT NULL DEFAULT false,
    ADD COLUMN agreed_at timestamptz,
    ADD COLUMN requeued_at timestamptz,
    ADD COLUMN reconcile_agreed smallint NOT NULL DEFAULT 0;

ALTER TABLE gateway_records ALTER COLUMN request_sealed SET STORAGE EXTERNAL;

CREATE FUNCTION gateway_begin_attempt() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    NEW.evidence := NULL;
    NEW.doubtful_until := NULL;
    NEW.looked_at := NULL;
    NEW.looked_over := false;
    NEW.agreed_at := NULL;
    NEW.reconcile_agreed := 0;
    RETURN NEW;
END $$;
CREATE TRIGGER gateway_records_begin_attempt BEFORE UPDATE OF status ON gateway_records
    FOR EACH ROW WHEN (OLD.status <> 'in_progress' AND NEW.status = 'in_progress') EXECUTE FUNCTION gateway_begin_attempt();

CREATE INDEX IF NOT EXISTS gateway_records_due_by_route ON gateway_records (route_id, reconcile_after)
    WHERE status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed;
CREATE INDEX IF NOT EXISTS gateway_records_correlated ON gateway_records (correlation) WHERE correlation IS NOT NULL;
DROP INDEX gateway_records_due;

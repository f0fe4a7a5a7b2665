-- Accepted work, and upstreams that take part. One file, since gateways of the release before stay ready on a schema that is one migration
-- ahead of theirs, and no further (`migrate.READABLE_AHEAD`).
--
-- Accepted work: a record may be `pending`. It lasts, its client has a 202, and nothing of its request was sent.
--
--   accepted_at      when the gateway promised that the operation will be run, confirmed by this very write. Null: nobody was promised anything,
--                    and the record is as any other.
--   pending_until    until when the promise may wait to be kept. A record that is still pending then is completed with a 408.
--   due_at           from when on a pending record may be claimed; of no other record.
--   retention        how long such a record is kept after its end, where no process with its route ends it (with `gone_for` and `keep_for`).
--   request_sealed   (there since 0004) the request that is to be sent, encrypted.
--
-- `attempt` is 0 until the first claim.
--
-- Upstreams that take part tell how far they have come, and may complete records themselves (`gateway/store/co_commit.sql`):
--
--   recovery_point   (there since 0001) the label of the last point that an attempt of this life of the record has told.
--   recovery_data    what the upstream told with it.
--   completed_by     upstream, verdict or operator; null where the gateway completed it.
--
--   gateway_participants   the routes whose upstreams take part, as the gateway has them that started or reloaded last.
--
-- Safe on a live table, and for the release before. Nothing is rewritten or read: columns without a default are entries in the catalogue, NOT
-- VALID spares the constraints their scan, and no row that is there could break them, for they allow all that the old ones did. The release
-- before leaves the columns as it finds them; a trigger clears them when a record begins a new life, whichever release begins it. It does not
-- know the word `pending`: a retry of such a key gets 503 from it, and it leaves the record alone. So a route may accept work from the moment
-- on at which the last process of that release has gone, as its configuration does not know the setting either.
--
-- The two indexes are of rows that do not exist yet, but to build them the table is read while all wait. That is done here only if the table
-- has at most 64 MB; a larger one is refused, unchanged, until this was done, with traffic going on:
--
--   ALTER TABLE gateway_records ADD COLUMN IF NOT EXISTS due_at timestamptz, ADD COLUMN IF NOT EXISTS pending_until timestamptz;
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_records_pending ON gateway_records (route_id, scope_id, due_at)
--       WHERE status = 'pending';
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_records_pending_until ON gateway_records (pending_until) WHERE status = 'pending';
--
-- What is said in 0002 of the wait for the lock on gateway_records, which comes last, holds here.

SET LOCAL lock_timeout = '1500ms';

DO $$
DECLARE
    wanted text;
    valid boolean;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['gateway_records_pending', 'gateway_records_pending_until'] LOOP
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

CREATE FUNCTION gateway_begin_life() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    NEW.accepted_at := NULL;
    NEW.pending_until := NULL;
    NEW.due_at := NULL;
    NEW.retention := NULL;
    NEW.recovery_data := NULL;
    NEW.completed_by := NULL;
    RETURN NEW;
END $$;

CREATE TABLE gateway_participants (
    route_id       text COLLATE "C" PRIMARY KEY,
    lease          interval NOT NULL,
    retention      interval NOT NULL,
    gone_for       interval,
    keep_for       interval,
    longest_answer bigint NOT NULL,
    co_commit      boolean NOT NULL
);

ALTER TABLE gateway_records_archive
    ADD COLUMN accepted_at timestamptz,
    ADD COLUMN pending_until timestamptz,
    ADD COLUMN due_at timestamptz,
    ADD COLUMN retention interval,
    ADD COLUMN recovery_data json,
    ADD COLUMN completed_by text;

ALTER TABLE gateway_records
    ADD COLUMN accepted_at timestamptz,
    ADD COLUMN IF NOT EXISTS pending_until timestamptz,
    ADD COLUMN IF NOT EXISTS due_at timestamptz,
    ADD COLUMN retention interval,
    ADD COLUMN recovery_data json,
    ADD COLUMN completed_by text,
    DROP CONSTRAINT gateway_records_status,
    ADD CONSTRAINT gateway_records_status CHECK (status IN ('pending', 'in_progress', 'completed', 'failed_retryable', 'unknown')) NOT VALID,
    DROP CONSTRAINT gateway_records_shape,
    ADD CONSTRAINT gateway_records_shape CHECK (
        octet_length(owner) = 16
        AND octet_length(request_fingerprint) = 32
        AND version >= 1
        AND (attempt >= 1 OR (attempt = 0 AND accepted_at IS NOT NULL AND status IN ('pending', 'completed')))
        AND reconcile_attempts >= 0
        AND max_execution >= interval '0'
    ) NOT VALID,
    ADD CONSTRAINT gateway_records_pending CHECK (
        (status = 'pending') = (due_at IS NOT NULL)
        AND (status <> 'pending' OR (accepted_at IS NOT NULL AND request_sealed IS NOT NULL AND NOT observed))
        AND (accepted_at IS NULL OR (pending_until IS NOT NULL AND retention IS NOT NULL))
    ) NOT VALID;

CREATE TRIGGER gateway_records_begin_life BEFORE UPDATE OF record_id ON gateway_records
    FOR EACH ROW WHEN (OLD.record_id <> NEW.record_id) EXECUTE FUNCTION gateway_begin_life();

CREATE INDEX IF NOT EXISTS gateway_records_pending ON gateway_records (route_id, scope_id, due_at) WHERE status = 'pending';
CREATE INDEX IF NOT EXISTS gateway_records_pending_until ON gateway_records (pending_until) WHERE status = 'pending';

-- What is left of records that have expired: tombstones, and the archive.
--
-- `gone_for` and `keep_for` are what a record's route said when the record ended: how long, from its expiry, a tombstone remembers it and the
-- archive keeps it. They mean nothing while a record is in progress or in doubt.
--
-- A tombstone says that there was a completed record, and no more. `digest` is SHA-256 over scope and key, the one that names the record in
-- Redis, too; it holds no secret, since a tombstone that a changed secret hides would let a late retry run.
--
-- An observed record (`mode: observe`) in doubt may expire: it guards nothing.
--
-- Safe on a live table, and for the release before. Nothing is rewritten or read: columns without a default are entries in the
-- catalogue, NOT VALID spares the constraint its scan, and no row that is there could break it, for it allows all that the old one did. The archive
-- had no writer, so its index is made of nothing. gateway_records comes last and is locked for milliseconds; what is said in 0002 of the
-- wait for that lock holds here.
--
-- The release before leaves the new columns as it finds them, and its reaper neither tombstones nor archives. So a route may count on either
-- from the moment on at which the last process of that release has gone.

SET LOCAL lock_timeout = '1500ms';

CREATE TABLE gateway_tombstones (
    digest     bytea PRIMARY KEY,
    route_id   text NOT NULL,
    expires_at timestamptz NOT NULL,

    CONSTRAINT gateway_tombstones_shape CHECK (octet_length(digest) = 32)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

CREATE INDEX gateway_tombstones_expiring ON gateway_tombstones (expires_at);

ALTER TABLE gateway_records_archive
    ADD COLUMN gone_for interval,
    ADD COLUMN keep_for interval,
    ADD COLUMN purge_at timestamptz;

CREATE INDEX gateway_records_archive_purging ON gateway_records_archive (purge_at) WHERE purge_at IS NOT NULL;

ALTER TABLE gateway_records
    ADD COLUMN gone_for interval,
    ADD COLUMN keep_for interval,
    DROP CONSTRAINT gateway_records_expiry,
    ADD CONSTRAINT gateway_records_expiry CHECK (
        (status IN ('completed', 'failed_retryable')) = (expires_at IS NOT NULL)
        OR (status = 'unknown' AND observed AND expires_at IS NOT NULL)
    ) NOT VALID;

-- How a stored body is packed: 0 as it came, 1 zlib. A record says so in two places, so that no release misreads it:
--
--   response_schema_version 1   the body is plain, whatever this column says. All that the release before writes and reads; when it gives a
--                               row a new life it resets the version and leaves this column alone.
--   response_schema_version 2   the body is packed as this column says. The release before refuses to read such a record: its
--                               retries get 503 from it, and their answer from any gateway of this release.
--
-- Safe on a live table. A column with a constant default is an entry in the catalogue: nothing is rewritten or read, and rows that are there
-- have the default. NOT VALID spares the constraint its scan (no row that is there could break it) and binds all that is written from
-- now on. The tables are locked for milliseconds. What could take longer is the wait for that lock, with everybody else
-- queueing behind it: it is given up before a gateway's call (2 s) would time out, but not before a vacuum that is in the way has been
-- asked to leave (1 s). Nothing is changed then: migrate again.

SET LOCAL lock_timeout = '1500ms';

ALTER TABLE gateway_records_archive
    ADD COLUMN response_body_encoding smallint NOT NULL DEFAULT 0;

ALTER TABLE gateway_records
    ADD COLUMN response_body_encoding smallint NOT NULL DEFAULT 0,
    ADD CONSTRAINT gateway_records_packed CHECK (
        response_schema_version IS DISTINCT FROM 2 OR (response_body_encoding > 0 AND response_body IS NOT NULL)
    ) NOT VALID;

-- What refusals of repetitions may mean, who serves a scope, what an operator deleted. One file, since gateways of the release before stay ready
-- on a schema that is one migration ahead of theirs, and no further (`migrate.READABLE_AHEAD`).
--
-- Safe on a live table, and for the release before, which neither reads nor writes what is new:
--
--   judged                    true once an attempt of this life of the record was in doubt and then judged not to have executed, by a look, an
--                             event or a person. A refusal after that is a doubt, not an answer. Verdicts of the release before do not set it,
--                             and a new life that it begins keeps it, which errs toward doubt.
--
--   gateway_scope_holders     who serves a scope, and in which meaning: one row for each process that serves, extended while it lives. `claims` is
--                             a JSON list of what its configuration says that each of its scopes means, as in gateway_scopes. While `held_until`
--                             has not come, nobody gives one of these scopes another meaning: a scope without a live record may get one at any
--                             moment. Processes of the release before hold nothing; so the check of living processes is complete from the moment
--                             on at which the last of them has gone.
--
--   gateway_tombstones.scope  in which scope the record was. Null in tombstones that the release before wrote: each of them counts for every scope.
--
--   gateway_deletions         lives of records that an operator deleted, so that nothing of them that comes back in Redis is an answer: from an
--                             older copy of its data, or by the promotion of a replica that had not heard of the deletion. `number` counts deletions
--                             in the order of their commits: whoever writes one holds the only row of gateway_deletions_last until it commits. So a
--                             gateway that has read up to a number has missed none below it. A line may go when its record would have expired:
--                             Redis entries of it are no answers from then on. Deletions of the release before leave no line. Nor does an attempt
--                             put back a life that is listed.
--
--   digests of keys           what the deletion of a record leaves of its key: in history and audit lines `sha256:` and the digest that names the
--                             record in Redis, too, stands in the key's place; archived lives of the key go. The audit table stays append-only, but
--                             for that: a trigger lets the key of a line become its digest, and nothing else. Deletions of the release before leave
--                             the key's text, as they did.
--
-- The indexes find what is of one scope, or of one key. Requests that look for a tombstone or replace a kept record, and reapers, wait while they
-- are built; so a table of more than 64 MB is refused, unchanged, until this was done with traffic going on:
--
--   ALTER TABLE gateway_tombstones ADD COLUMN IF NOT EXISTS scope text COLLATE "C";
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_tombstones_scope ON gateway_tombstones (scope, expires_at);
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_records_archive_key ON gateway_records_archive (scope_id, idempotency_key);
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_history_key ON gateway_history (scope_id, idempotency_key);
--   CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_audit_key ON gateway_audit (scope_id, idempotency_key);
--
-- What is said in 0002 of the wait for the lock on gateway_records, which comes last, holds here.

SET LOCAL lock_timeout = '1500ms';

DO $$
DECLARE
    wanted record;
    valid boolean;
BEGIN
    FOR wanted IN
        VALUES
            ('gateway_tombstones', 'gateway_tombstones_scope'),
            ('gateway_records_archive', 'gateway_records_archive_key'),
            ('gateway_history', 'gateway_history_key'),
            ('gateway_audit', 'gateway_audit_key')
    LOOP
        valid := (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(wanted.column2));
        IF NOT valid THEN
            RAISE EXCEPTION 'the index % is invalid: its building was cut short; drop it, and build it again', wanted.column2
                USING ERRCODE = 'object_not_in_prerequisite_state';
        ELSIF valid IS NULL AND pg_relation_size(wanted.column1) > 64 * 1024 * 1024 THEN
            RAISE EXCEPTION 'the table % is large: build the index % beforehand, as the head of the file says', wanted.column1, wanted.column2
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    END LOOP;
END
$$;

CREATE TABLE gateway_scope_holders (
    holder     uuid PRIMARY KEY,
    claims     text NOT NULL,
    held_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE gateway_deletions (
    number     bigint PRIMARY KEY,
    record_id  uuid NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE INDEX gateway_deletions_expiring ON gateway_deletions (expires_at);
CREATE INDEX gateway_deletions_record ON gateway_deletions (record_id);

CREATE TABLE gateway_deletions_last (
    number bigint NOT NULL,
    sole   boolean PRIMARY KEY DEFAULT true CHECK (sole)
) WITH (fillfactor = 10);

INSERT INTO gateway_deletions_last (number) VALUES (0);

CREATE INDEX IF NOT EXISTS gateway_audit_key ON gateway_audit (scope_id, idempotency_key);
CREATE INDEX IF NOT EXISTS gateway_history_key ON gateway_history (scope_id, idempotency_key);
CREATE INDEX IF NOT EXISTS gateway_records_archive_key ON gateway_records_archive (scope_id, idempotency_key);

DROP TRIGGER gateway_audit_append_only ON gateway_audit;
CREATE TRIGGER gateway_audit_append_only BEFORE DELETE OR TRUNCATE ON gateway_audit
    FOR EACH STATEMENT EXECUTE FUNCTION gateway_audit_refuse();
CREATE TRIGGER gateway_audit_only_digests BEFORE UPDATE ON gateway_audit
    FOR EACH ROW WHEN (
        (NEW.id, NEW.at, NEW.actor, NEW.action, NEW.reason, NEW.scope_id, NEW.record_id, NEW.detail)
            IS DISTINCT FROM (OLD.id, OLD.at, OLD.actor, OLD.action, OLD.reason, OLD.scope_id, OLD.record_id, OLD.detail)
        OR NEW.idempotency_key IS DISTINCT FROM 'sha256:' || encode(
            sha256(
                'idempotency-gateway/lookup/1\000'::bytea
                || convert_to(octet_length(convert_to(OLD.scope_id, 'UTF8')) || ':' || OLD.scope_id || OLD.idempotency_key, 'UTF8')
            ),
            'hex'
        )
    ) EXECUTE FUNCTION gateway_audit_refuse();

ALTER TABLE gateway_tombstones ADD COLUMN IF NOT EXISTS scope text COLLATE "C";
CREATE INDEX IF NOT EXISTS gateway_tombstones_scope ON gateway_tombstones (scope, expires_at);

ALTER TABLE gateway_records_archive
    ADD COLUMN judged boolean NOT NULL DEFAULT false;

ALTER TABLE gateway_records
    ADD COLUMN judged boolean NOT NULL DEFAULT false;

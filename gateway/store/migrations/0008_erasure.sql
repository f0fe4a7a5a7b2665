-- What the deletion of a record leaves of its key: digests. In history and audit lines `sha256:` and the digest that names the record in
-- Redis, too, stands in the key's place; archived lives of the key go.
--
-- The audit table stays append-only, but for that: a trigger lets the key of a line become its digest, and nothing else.
--
-- The indexes find what is of one key. Reapers, and requests that replace a kept record, wait while the archive's is built; so a table of more
-- than 64 MB is refused, unchanged, until this was done with traffic going on:
--
--  CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_records_archive_key ON gateway_records_archive (scope_id, idempotency_key);
--  CREATE INDEX CONCURRENTLY IF NOT EXISTS gateway_history_key ON gateway_history (scope_id, idempotency_key);
--
-- Safe for the release before: its deletions leave the key's text, as they did.

SET LOCAL lock_timeout = '1500ms';

DO $$
DECLARE
    wanted record;
    valid boolean;
BEGIN
    FOR wanted IN VALUES ('gateway_records_archive', 'gateway_records_archive_key'), ('gateway_history', 'gateway_history_key') LOOP
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

CREATE INDEX IF NOT EXISTS gateway_records_archive_key ON gateway_records_archive (scope_id, idempotency_key);
CREATE INDEX IF NOT EXISTS gateway_history_key ON gateway_history (scope_id, idempotency_key);
CREATE INDEX gateway_audit_key ON gateway_audit (scope_id, idempotency_key);

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

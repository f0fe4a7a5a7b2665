-- YugabyteDB: the keys of the schema that `migrate` has made, in the orders that its tablets need. UNTRIED: written after the manual of
-- YugabyteDB 2025.2, never run.
--
-- While no gateway runs, on a schema that is up to date and holds no records: ysqlsh --file yugabytedb.sql
--
-- A table or an index whose first column is not said to be ASC is split by a hash of that column. That is what records want: one caller's are
-- together, and callers are spread. It is not what an index on an instant wants: the sweeper reads it as a range. So those are made anew, in
-- ranges. The price: the newest entries of an index all go to its last tablet. Buckets in front of the instant would spread them, but the
-- gateway's statements would have to name the buckets.
--
-- docs/scaling.md says what each statement of the gateway needs of YugabyteDB, and which settings of it.

DROP INDEX gateway_records_lapsing;
DROP INDEX gateway_records_expiring;
DROP INDEX gateway_records_doubtful;
DROP INDEX gateway_records_dead;
DROP INDEX gateway_records_retryable;
DROP INDEX gateway_records_due_by_route;
DROP INDEX gateway_records_pending;
DROP INDEX gateway_records_pending_until;

CREATE INDEX gateway_records_lapsing ON gateway_records (locked_until ASC) WHERE status = 'in_progress';
CREATE INDEX gateway_records_expiring ON gateway_records (expires_at ASC) WHERE expires_at IS NOT NULL;
CREATE INDEX gateway_records_doubtful ON gateway_records (unknown_since ASC) WHERE status = 'unknown';
CREATE INDEX gateway_records_dead ON gateway_records (dead_lettered_at ASC) WHERE dead_lettered_at IS NOT NULL;
CREATE INDEX gateway_records_retryable ON gateway_records (expires_at ASC) WHERE status = 'failed_retryable';
CREATE INDEX gateway_records_due_by_route ON gateway_records (route_id ASC, reconcile_after ASC)
    WHERE status = 'unknown' AND dead_lettered_at IS NULL AND NOT observed;
CREATE INDEX gateway_records_pending ON gateway_records (route_id ASC, scope_id ASC, due_at ASC) WHERE status = 'pending';
CREATE INDEX gateway_records_pending_until ON gateway_records (pending_until ASC) WHERE status = 'pending';

-- The others that are read in the order of an instant.
DROP INDEX gateway_tombstones_expiring;
CREATE INDEX gateway_tombstones_expiring ON gateway_tombstones (expires_at ASC);
DROP INDEX gateway_records_archive_purging;
CREATE INDEX gateway_records_archive_purging ON gateway_records_archive (purge_at ASC) WHERE purge_at IS NOT NULL;
DROP INDEX gateway_history_aging;
CREATE INDEX gateway_history_aging ON gateway_history (purge_after ASC);
DROP INDEX gateway_webhook_events_expiring;
CREATE INDEX gateway_webhook_events_expiring ON gateway_webhook_events (expires_at ASC);
DROP INDEX gateway_deletions_expiring;
CREATE INDEX gateway_deletions_expiring ON gateway_deletions (expires_at ASC);
DROP INDEX gateway_proposals_waiting;
CREATE INDEX gateway_proposals_waiting ON gateway_proposals (proposed_at ASC, proposal_id ASC);

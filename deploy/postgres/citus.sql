-- Citus: distributes the schema that `migrate` has made over the workers. UNTRIED: written after the manual of Citus 13, never run.
--
-- On the coordinator, while no gateway runs, on a schema that is up to date: psql --single-transaction --file citus.sql
--
-- It is not enough. Citus refuses statements of the gateway's as they are (docs/scaling.md has the list): this file is for those who want to
-- try what becomes of the others.

-- Triggers are not for distributed tables, and no rule of the gateway is in one: these serve gateways of the release before, and hands.
DROP TRIGGER gateway_records_begin_attempt ON gateway_records;
DROP TRIGGER gateway_records_begin_life ON gateway_records;
DROP TRIGGER gateway_audit_append_only ON gateway_audit;
DROP TRIGGER gateway_audit_only_digests ON gateway_audit;

-- A unique key of a distributed table holds the column that it is distributed by.
ALTER TABLE gateway_records_archive DROP CONSTRAINT gateway_records_archive_pkey, ADD PRIMARY KEY (scope_id, record_id, version);
ALTER TABLE gateway_history DROP CONSTRAINT gateway_history_pkey, ADD PRIMARY KEY (scope_id, id);
ALTER TABLE gateway_audit DROP CONSTRAINT gateway_audit_pkey, ADD PRIMARY KEY (scope_id, id);

-- What one statement writes together is on one worker.
SELECT create_distributed_table('gateway_records', 'scope_id', shard_count => 32);
SELECT create_distributed_table('gateway_records_archive', 'scope_id', colocate_with => 'gateway_records');
SELECT create_distributed_table('gateway_history', 'scope_id', colocate_with => 'gateway_records');
SELECT create_distributed_table('gateway_audit', 'scope_id', colocate_with => 'gateway_records');
SELECT create_distributed_table('gateway_proposals', 'scope_id', colocate_with => 'gateway_records');

-- Without a scope in their keys, and small: every node has them. A tombstone is written beside the record that it replaces, so a reaper's
-- statement changes a distributed and a reference table at once.
SELECT create_reference_table('gateway_tombstones');
SELECT create_reference_table('gateway_webhook_events');
SELECT create_reference_table('gateway_ended_sessions');
SELECT create_reference_table('gateway_deletions');
SELECT create_reference_table('gateway_deletions_last');
SELECT create_reference_table('gateway_participants');
SELECT create_reference_table('gateway_scopes');
SELECT create_reference_table('gateway_scope_holders');
SELECT create_reference_table('gateway_fingerprint_policies');

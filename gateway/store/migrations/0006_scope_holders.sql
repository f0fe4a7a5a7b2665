-- Who serves a scope, and in which meaning: one row for each process that serves, extended while it lives.
--
-- `claims` is a JSON list of what the process's configuration says that each of its scopes means, as in gateway_scopes. While `held_until` has
-- not come, nobody gives one of these scopes another meaning: a scope without a live record may get one at any moment.
--
-- `scope` of a tombstone says in which scope its record was. Null in those that the release before wrote: each of them counts for every scope.
--
-- Safe on a live table, and for the release before, which neither reads nor writes what is new. Its processes hold nothing; so the check of
-- living processes is complete from the moment on at which the last process of that release has gone. The index of tombstones makes reapers
-- wait while it is built, and nobody else: requests only read tombstones.

SET LOCAL lock_timeout = '1500ms';

CREATE TABLE gateway_scope_holders (
    holder     uuid PRIMARY KEY,
    claims     text NOT NULL,
    held_until timestamptz NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE gateway_tombstones ADD COLUMN scope text COLLATE "C";

CREATE INDEX gateway_tombstones_scope ON gateway_tombstones (scope, expires_at);

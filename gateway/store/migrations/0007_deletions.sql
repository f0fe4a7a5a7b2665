-- Lives of records that an operator deleted, so that nothing of them that comes back in Redis is an answer: from an older copy of its data, or
-- by the promotion of a replica that had not heard of the deletion.
--
-- `number` counts deletions in the order of their commits: whoever writes one holds the only row of gateway_deletions_last until it commits. So
-- a gateway that has read up to a number has missed none below it. A line may go when its record would have expired: Redis entries of it are
-- no answers from then on.
--
-- Safe on a live database, and for the release before: the tables are new. Its deletions leave no line.

CREATE TABLE gateway_deletions (
    number     bigint PRIMARY KEY,
    record_id  uuid NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE INDEX gateway_deletions_expiring ON gateway_deletions (expires_at);

CREATE TABLE gateway_deletions_last (
    number bigint NOT NULL,
    sole   boolean PRIMARY KEY DEFAULT true CHECK (sole)
) WITH (fillfactor = 10);

INSERT INTO gateway_deletions_last (number) VALUES (0);

-- What a refusal of a later attempt may mean: `judged` is true once an attempt of this life of the record was in doubt and then judged not to
-- have executed, by a look, an event or a person. A refusal after that is a doubt, not an answer.
--
-- Safe on a live table, and for the release before, which leaves the column as it finds it: its verdicts do not set it, and a new life that it
-- begins keeps it, which errs toward doubt. What is said in 0002 of the wait for the lock holds here.

SET LOCAL lock_timeout = '1500ms';

ALTER TABLE gateway_records_archive
    ADD COLUMN judged boolean NOT NULL DEFAULT false;

ALTER TABLE gateway_records
    ADD COLUMN judged boolean NOT NULL DEFAULT false;

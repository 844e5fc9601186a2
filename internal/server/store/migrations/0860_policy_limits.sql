-- +goose Up

-- The bytes of the log and of the packs of an ended evaluation, for the quota; -1 until they are measured.
ALTER TABLE policy_evaluations ADD COLUMN stored_bytes BIGINT NOT NULL DEFAULT -1;
CREATE INDEX policy_evaluations_unmeasured ON policy_evaluations (ended_at) WHERE stored_bytes < 0 AND ended_at > 0;

-- A claim reads the waiting evaluations of the groups of its pool.
CREATE INDEX policy_evaluations_waiting_by_group ON policy_evaluations (group_id, queued_at, id) WHERE status = 'not-started';

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX policy_evaluations_waiting_by_group;
DROP INDEX policy_evaluations_unmeasured;
ALTER TABLE policy_evaluations DROP COLUMN stored_bytes;

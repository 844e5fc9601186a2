-- +goose Up

-- Who requested an evaluation, by name; '' if no caller did.
ALTER TABLE policy_evaluations ADD COLUMN requested_by TEXT NOT NULL DEFAULT '';

-- The orders in which pages list evaluations.
DROP INDEX policy_evaluations_by_org;
CREATE INDEX policy_evaluations_by_org ON policy_evaluations (org_id, queued_at, id);
CREATE INDEX policy_evaluations_unfinished ON policy_evaluations (org_id, queued_at, id) WHERE ended_at = 0;
CREATE INDEX policy_evaluations_failed ON policy_evaluations (org_id, queued_at, id) WHERE status = 'failed';

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX policy_evaluations_failed;
DROP INDEX policy_evaluations_unfinished;
DROP INDEX policy_evaluations_by_org;
CREATE INDEX policy_evaluations_by_org ON policy_evaluations (org_id);
ALTER TABLE policy_evaluations DROP COLUMN requested_by;

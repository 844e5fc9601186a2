-- +goose Up

-- Who paused a queue, and when.
ALTER TABLE stack_queues ADD COLUMN paused_by TEXT NOT NULL DEFAULT '';
ALTER TABLE stack_queues ADD COLUMN paused_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE org_queues ADD COLUMN paused_by TEXT NOT NULL DEFAULT '';
ALTER TABLE org_queues ADD COLUMN paused_at BIGINT NOT NULL DEFAULT 0;

-- The finished deployments of an organization in the order of their list, with the columns of its filters.
CREATE INDEX jobs_finished ON jobs (org_id, queued_at DESC, deployment_id, status, reason, operation, pool_id, stack_id, agent_id)
    WHERE status IN ('succeeded', 'failed', 'skipped');
CREATE INDEX jobs_queued_by_org ON jobs (org_id, queued_at, deployment_id) WHERE status = 'not-started';
CREATE INDEX deployments_by_user ON deployments (org_id, requested_by, created_at DESC, id) WHERE requested_by <> '';

-- +goose Down
DROP INDEX deployments_by_user;
DROP INDEX jobs_queued_by_org;
DROP INDEX jobs_finished;
ALTER TABLE org_queues DROP COLUMN paused_at;
ALTER TABLE org_queues DROP COLUMN paused_by;
ALTER TABLE stack_queues DROP COLUMN paused_at;
ALTER TABLE stack_queues DROP COLUMN paused_by;

-- +goose Up

-- The finished deployments of an organization in the order of their list, for its filters: those that did not succeed, by
-- operation, by pool, and by what started them.
CREATE INDEX jobs_unsuccessful ON jobs (org_id, queued_at DESC, deployment_id, status, reason, drift_found, operation, pool_id, stack_id)
    WHERE status IN ('failed', 'skipped');
CREATE INDEX jobs_finished_by_operation ON jobs (org_id, operation, queued_at DESC, deployment_id) WHERE status IN ('succeeded', 'failed', 'skipped');
CREATE INDEX jobs_finished_by_pool ON jobs (org_id, pool_id, queued_at DESC, deployment_id) WHERE status IN ('succeeded', 'failed', 'skipped');
CREATE INDEX deployments_by_initiator ON deployments (org_id, initiator, created_at DESC, id);

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX deployments_by_initiator;
DROP INDEX jobs_finished_by_pool;
DROP INDEX jobs_finished_by_operation;
DROP INDEX jobs_unsuccessful;

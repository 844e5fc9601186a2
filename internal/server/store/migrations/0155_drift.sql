-- +goose Up

-- Drift runs are deployments that detect or remediate drift, and previews of a refresh.
CREATE INDEX deployments_drift ON deployments (stack_id, created_at) WHERE operation IN ('detect-drift', 'remediate-drift');
CREATE INDEX updates_drift ON updates (stack_id, created_at) WHERE kind = 'refresh' AND preview = 1;

-- +goose Down
DROP INDEX updates_drift;
DROP INDEX deployments_drift;

-- +goose Up

-- The trust class of what a deployment runs: own, branch, or '' if its origin is not proven.
ALTER TABLE deployments ADD COLUMN trust TEXT NOT NULL DEFAULT '';
-- Increases when the workspaces of the stack's deployments are discarded.
ALTER TABLE stack_queues ADD COLUMN cache_generation BIGINT NOT NULL DEFAULT 0;

-- +goose Down

ALTER TABLE stack_queues DROP COLUMN cache_generation;
ALTER TABLE deployments DROP COLUMN trust;

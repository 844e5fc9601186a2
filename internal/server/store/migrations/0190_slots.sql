-- +goose Up

-- The number of jobs that an agent can run at once; 0 while it cannot start jobs.
ALTER TABLE pool_agents ADD COLUMN slots BIGINT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE pool_agents DROP COLUMN slots;

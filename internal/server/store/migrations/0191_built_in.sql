-- +goose Up

-- Marks the pool of the server's own runners.
ALTER TABLE agent_pools ADD COLUMN built_in BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE agent_pools DROP COLUMN built_in;

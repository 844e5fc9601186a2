-- +goose Up

-- After how many hours the stacks of an audit group are evaluated without another cause; 0 for never.
ALTER TABLE policy_groups ADD COLUMN evaluation_hours BIGINT NOT NULL DEFAULT 24;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE policy_groups DROP COLUMN evaluation_hours;

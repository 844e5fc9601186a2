-- +goose Up

-- These indexes are used to find states to which no row refers.
CREATE INDEX stacks_by_state ON stacks (state_blob) WHERE state_blob <> '';
CREATE INDEX updates_by_state ON updates (state_blob) WHERE state_blob <> '';

-- +goose Down
DROP INDEX updates_by_state;
DROP INDEX stacks_by_state;

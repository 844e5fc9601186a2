-- +goose Up

-- The activity of a stack in the order of its pages.
CREATE INDEX deployments_by_stack ON deployments (stack_id, created_at DESC, id);
CREATE INDEX updates_alone ON updates (stack_id, created_at DESC, id) WHERE deployment_id = '' AND started_at > 0;

-- +goose Down
DROP INDEX updates_alone;
DROP INDEX deployments_by_stack;

-- +goose Up

-- A user who sees only some stacks of an organization, or only some deleted ones, sees those that the user created.
DROP INDEX deleted_stacks_by_creator;
CREATE INDEX stacks_by_creator ON stacks (created_by, org_id) WHERE created_by <> '';

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX stacks_by_creator;
CREATE INDEX deleted_stacks_by_creator ON stacks (created_by) WHERE org_id = 'deleted-stacks';

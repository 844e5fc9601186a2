-- +goose Up

-- Finds the deleted stacks that a user created, without reading all those of the organization.
CREATE INDEX deleted_stacks_by_creator ON stacks (created_by) WHERE org_id = 'deleted-stacks';

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX deleted_stacks_by_creator;

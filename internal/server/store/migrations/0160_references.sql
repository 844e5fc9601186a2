-- +goose Up

-- The stacks that the StackReferences in a stack's state name.
CREATE TABLE stack_references (
    stack_id TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    org      TEXT NOT NULL,
    project  TEXT NOT NULL,
    name     TEXT NOT NULL,
    PRIMARY KEY (stack_id, org, project, name)
);
CREATE INDEX stack_references_by_name ON stack_references (org, project, name);

-- The key of the state from which a stack's references were read.
ALTER TABLE stacks ADD COLUMN references_of TEXT NOT NULL DEFAULT '';
CREATE INDEX stacks_without_references ON stacks (id) WHERE active_update = '' AND references_of <> state_blob;

-- +goose Down
DROP INDEX stacks_without_references;
ALTER TABLE stacks DROP COLUMN references_of;
DROP TABLE stack_references;

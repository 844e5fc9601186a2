-- +goose Up

-- By which words resources are found. Each resource has a row for each beginning of a part of its name, such as
-- payment-topic and topic; word is it in lower case, as bytes, so that both engines compare it in the same order. The
-- server writes the rows when it reads a stack's references from a new state.
CREATE TABLE resource_names (
    org_id   TEXT NOT NULL,
    word     BYTEA NOT NULL,
    stack_id TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    name     TEXT NOT NULL,
    PRIMARY KEY (org_id, word, stack_id, kind, name)
);
CREATE INDEX resource_names_by_stack ON resource_names (stack_id);

-- The current states are read again.
UPDATE stacks SET references_of = '';

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE resource_names;

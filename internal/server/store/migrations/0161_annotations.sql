-- +goose Up

-- JSON objects that clients attach to stacks. The version of an annotation increases with each
-- change.
CREATE TABLE stack_annotations (
    stack_id    TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL,
    source      TEXT NOT NULL,
    version     BIGINT NOT NULL,
    document    TEXT NOT NULL,
    modified_at BIGINT NOT NULL,
    PRIMARY KEY (stack_id, kind, source)
);

-- +goose Down
DROP TABLE stack_annotations;

-- +goose Up

-- Whether an update was to change only some resources of its stack, so that it says nothing about the others. It is
-- unknown of earlier updates.
ALTER TABLE updates ADD COLUMN targeted BIGINT NOT NULL DEFAULT 0;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE updates DROP COLUMN targeted;

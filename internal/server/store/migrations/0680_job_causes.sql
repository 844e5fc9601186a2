-- +goose Up

-- Why a job failed, in words, as a JSON object; '' for a job that did not fail, that has not ended, or that ended
-- before this column existed.
ALTER TABLE jobs ADD COLUMN cause TEXT NOT NULL DEFAULT '';

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE jobs DROP COLUMN cause;

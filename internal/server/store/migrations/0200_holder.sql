-- +goose Up

-- The runner that received permission to start the job's current claim; '' if it gave no name.
ALTER TABLE jobs ADD COLUMN holder TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE jobs DROP COLUMN holder;

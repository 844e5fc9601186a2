-- +goose Up

-- The number of the job's claims whose agent stopped reporting before the job started.
ALTER TABLE jobs ADD COLUMN silences INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE jobs DROP COLUMN silences;

-- +goose Up

-- An entry about reads stands for all of them in a time: their number (0 for a change), the time of the
-- last one, and what they named. Its address lists the addresses of all readers.
ALTER TABLE audit_entries ADD COLUMN reads BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_entries ADD COLUMN last_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_entries ADD COLUMN names TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE audit_entries DROP COLUMN names;
ALTER TABLE audit_entries DROP COLUMN last_at;
ALTER TABLE audit_entries DROP COLUMN reads;

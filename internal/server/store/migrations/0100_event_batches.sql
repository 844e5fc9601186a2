-- +goose Up

-- A row contains consecutive events of an update; its sequence number is that of the last event.
-- Rows of earlier versions are valid: each contains one event, as text in the column body. They are
-- not rewritten, because they can be gigabytes.
ALTER TABLE engine_events ADD COLUMN events BIGINT NOT NULL DEFAULT 1;
ALTER TABLE engine_events ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
ALTER TABLE engine_events ADD COLUMN packed BYTEA NOT NULL DEFAULT '';

-- +goose Down
DELETE FROM engine_events WHERE events > 1 OR size > 0;
ALTER TABLE engine_events DROP COLUMN packed;
ALTER TABLE engine_events DROP COLUMN size;
ALTER TABLE engine_events DROP COLUMN events;

-- +goose Up

-- When a server last compared its clock in order to remove old data, and until when it removes none because the clock
-- might be wrong; 0 for never.
ALTER TABLE server_beats ADD COLUMN swept_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE server_beats ADD COLUMN held_until BIGINT NOT NULL DEFAULT 0;

-- An earlier version can have swept until its last beat. The next one can come before the first comparison.
UPDATE server_beats SET swept_at = beat_at;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE server_beats DROP COLUMN held_until;
ALTER TABLE server_beats DROP COLUMN swept_at;

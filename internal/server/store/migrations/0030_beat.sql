-- +goose Up

-- When the next beat is due, and the clock that nobody sets: the time since the
-- start of the machine, and which start that was; '' with PostgreSQL.
ALTER TABLE server_beat ADD COLUMN every_us BIGINT NOT NULL DEFAULT 5000000;
ALTER TABLE server_beat ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE server_beat ADD COLUMN boot_us BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE server_beat DROP COLUMN boot_us;
ALTER TABLE server_beat DROP COLUMN boot_id;
ALTER TABLE server_beat DROP COLUMN every_us;

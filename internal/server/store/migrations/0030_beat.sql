-- +goose Up

-- every_us is the interval until the next beat. boot_us is the time since the machine booted, which
-- setting the clock does not affect. boot_id identifies that boot and is '' with PostgreSQL.
ALTER TABLE server_beat ADD COLUMN every_us BIGINT NOT NULL DEFAULT 5000000;
ALTER TABLE server_beat ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE server_beat ADD COLUMN boot_us BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE server_beat DROP COLUMN boot_us;
ALTER TABLE server_beat DROP COLUMN boot_id;
ALTER TABLE server_beat DROP COLUMN every_us;

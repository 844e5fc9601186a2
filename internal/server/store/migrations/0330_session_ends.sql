-- +goose Up

-- When a session ends depends on the user, too. Sessions that a provider opened end after a day, others
-- after 14.
ALTER TABLE sessions ADD COLUMN ends_at BIGINT NOT NULL DEFAULT 0;
UPDATE sessions SET ends_at = created_at + CASE WHEN way = 'provider' THEN 86400000000 ELSE 1209600000000 END;

-- +goose Down
ALTER TABLE sessions DROP COLUMN ends_at;

-- +goose Up

-- The time at which the user proved who they are: for an identity provider, it can be before the
-- session began.
ALTER TABLE sessions ADD COLUMN confirmed_at BIGINT NOT NULL DEFAULT 0;
UPDATE sessions SET confirmed_at = created_at;

-- +goose Down
ALTER TABLE sessions DROP COLUMN confirmed_at;

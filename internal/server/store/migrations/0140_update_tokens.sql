-- +goose Up

-- The organization or team token that created an update; '' for other callers.
ALTER TABLE updates ADD COLUMN token_id TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE updates DROP COLUMN token_id;

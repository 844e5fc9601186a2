-- +goose Up

-- What the last change of the settings contained without effect, as JSON.
ALTER TABLE deployment_settings ADD COLUMN warnings TEXT NOT NULL DEFAULT '';

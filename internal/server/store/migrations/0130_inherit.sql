-- +goose Up

-- Whether a deployment's request inherited the settings of its stack, as requests do by default.
ALTER TABLE deployments ADD COLUMN inherit_settings BIGINT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE deployments DROP COLUMN inherit_settings;

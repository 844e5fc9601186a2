-- +goose Up

-- The time up to which the deliveries that a forge could not hand over were read.
ALTER TABLE vcs_integrations ADD COLUMN deliveries_at BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE vcs_integrations DROP COLUMN deliveries_at;

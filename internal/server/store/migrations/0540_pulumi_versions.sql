-- +goose Up

-- The range of versions of pulumi for deployments whose settings name none; empty for any.
ALTER TABLE organizations ADD COLUMN pulumi_version TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE organizations DROP COLUMN pulumi_version;

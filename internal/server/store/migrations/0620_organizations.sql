-- +goose Up

-- The limit in bytes of what an organization stores: 0 for the server's, -1 for none.
ALTER TABLE organizations ADD COLUMN storage_quota BIGINT NOT NULL DEFAULT 0;
-- The limit of an organization's claimed and running jobs, or 0 for the server's.
ALTER TABLE organizations ADD COLUMN deployment_quota BIGINT NOT NULL DEFAULT 0;

-- When an organization was deleted, or 0. Its row remains until all that it stored has been removed, under a name
-- that no organization can have.
ALTER TABLE organizations ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE organizations DROP COLUMN deleted_at;
ALTER TABLE organizations DROP COLUMN deployment_quota;
ALTER TABLE organizations DROP COLUMN storage_quota;

-- +goose Up

-- The deployments that a user has started together, for several stacks, have the same batch; '' for all others.
ALTER TABLE deployments ADD COLUMN batch TEXT NOT NULL DEFAULT '';
CREATE INDEX deployments_by_batch ON deployments (org_id, batch, created_at DESC, id) WHERE batch <> '';

-- Views of an organization's stacks that users have saved: the project, or '' for all, and the query of the list's URL.
CREATE TABLE views (
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    org_id     TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    project    TEXT NOT NULL,
    query      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, org_id, name)
);

-- How users want to see the console: the time zone, or '' for that of the browser; the density and the scheme, or '' for
-- the usual ones.
ALTER TABLE users ADD COLUMN zone TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN density TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN scheme TEXT NOT NULL DEFAULT '';

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE users DROP COLUMN scheme;
ALTER TABLE users DROP COLUMN density;
ALTER TABLE users DROP COLUMN zone;
DROP TABLE views;
DROP INDEX deployments_by_batch;
ALTER TABLE deployments DROP COLUMN batch;

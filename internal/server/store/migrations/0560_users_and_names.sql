-- +goose Up

-- When a user was disabled and when deleted, or 0. A deleted user keeps its row, because histories name it.
ALTER TABLE users ADD COLUMN disabled_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;

-- The former names of organizations. They still find the organization, because states, programs and running
-- clients name it.
CREATE TABLE former_names (
    name       TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    renamed_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX former_names_by_lower_name ON former_names (LOWER(name));
CREATE INDEX former_names_by_org ON former_names (org_id);

-- +goose Down
DROP TABLE former_names;
ALTER TABLE users DROP COLUMN deleted_at;
ALTER TABLE users DROP COLUMN disabled_at;

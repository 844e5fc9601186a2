-- +goose Up

-- When each environment was opened last, to the minute, and by whom. The audit log has each opening, but an entry can be
-- removed because of its age.
CREATE TABLE environment_openings (
    environment_id TEXT PRIMARY KEY REFERENCES environments (id) ON DELETE CASCADE,
    opened_at      BIGINT NOT NULL,
    opened_by      TEXT NOT NULL -- name of the caller
);

-- The list of environments counts those that import each one.
DROP INDEX environment_imports_by_name;
CREATE INDEX environment_imports_by_name ON environment_imports (project, name, environment_id, number);

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX environment_imports_by_name;
CREATE INDEX environment_imports_by_name ON environment_imports (project, name);
DROP TABLE environment_openings;

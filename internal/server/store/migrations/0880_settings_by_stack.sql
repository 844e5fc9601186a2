-- +goose Up

-- The page of a stack's settings says who has set a secret, and when.
CREATE INDEX audit_entries_settings ON audit_entries (subject_id, at, id) WHERE action = 'settings.changed';

-- Older programs can use the schema after this.

-- +goose Down
DROP INDEX audit_entries_settings;

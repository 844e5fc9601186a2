-- +goose Up

-- The environments that stacks manage: parts of the configuration of a stack. The stack need not exist any more.
CREATE TABLE managed_environments (
    stack_id       TEXT PRIMARY KEY,
    environment_id TEXT NOT NULL UNIQUE REFERENCES environments (id) ON DELETE CASCADE,
    created_at     BIGINT NOT NULL
);

-- Definitions with which a command evaluates a managed environment before an update publishes them. Only the token that made
-- a draft can use it.
CREATE TABLE environment_drafts (
    id             TEXT PRIMARY KEY,
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    token_id       TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    base           BIGINT NOT NULL, -- number of the revision that the draft changes
    definition     TEXT NOT NULL, -- YAML, in which secrets are ciphertexts
    imports        TEXT NOT NULL, -- the environments that the definition names
    created_at     BIGINT NOT NULL
);
CREATE INDEX environment_drafts_by_environment ON environment_drafts (environment_id, created_at);
CREATE INDEX environment_drafts_by_token ON environment_drafts (token_id);
CREATE INDEX environment_drafts_by_age ON environment_drafts (created_at);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE environment_drafts;
DROP TABLE managed_environments;

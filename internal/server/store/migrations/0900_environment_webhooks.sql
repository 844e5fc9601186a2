-- +goose Up

-- The webhooks of environments, whose owner in webhooks.stack_id is the environment. Programs that do not know this table
-- take such a webhook for that of a deleted stack; the reference keeps them from removing it.
CREATE TABLE environment_webhooks (
    hook_id        TEXT PRIMARY KEY REFERENCES webhooks (id),
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE
);
CREATE INDEX environment_webhooks_by_environment ON environment_webhooks (environment_id);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE environment_webhooks;

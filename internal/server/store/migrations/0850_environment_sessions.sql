-- +goose Up

-- Opened environments. A session can be read only with the token that opened it, and ends with that token.
CREATE TABLE environment_sessions (
    id          TEXT PRIMARY KEY,
    org_id      TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    token_id    TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    environment TEXT NOT NULL, -- as project/name; '' for a definition without a name
    sealed      BYTEA NOT NULL, -- the values, encrypted
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL
);
CREATE INDEX environment_sessions_by_org ON environment_sessions (org_id);
CREATE INDEX environment_sessions_by_token ON environment_sessions (token_id, created_at);
CREATE INDEX environment_sessions_by_expiry ON environment_sessions (expires_at);

-- The secrets of the environments that the job of a deployment has opened, which are masked in its log and events.
CREATE TABLE environment_masks (
    id            TEXT PRIMARY KEY, -- a keyed hash of the deployment and the secrets
    deployment_id TEXT NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    sealed        BYTEA NOT NULL, -- the secrets, encrypted
    size          BIGINT NOT NULL, -- of the secrets in bytes
    created_at    BIGINT NOT NULL
);
CREATE INDEX environment_masks_by_deployment ON environment_masks (deployment_id);
CREATE INDEX environment_masks_by_age ON environment_masks (created_at);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE environment_masks;
DROP TABLE environment_sessions;

-- +goose Up

-- Small values that belong to the installation, such as the wrapped key ring.
CREATE TABLE installation (
    name  TEXT PRIMARY KEY,
    value BYTEA NOT NULL
);

CREATE TABLE organizations (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    display_name TEXT NOT NULL,
    created_at   BIGINT NOT NULL
);

CREATE TABLE users (
    id          TEXT PRIMARY KEY,
    login       TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    email       TEXT NOT NULL,
    site_admin  BIGINT NOT NULL DEFAULT 0,
    default_org TEXT NOT NULL DEFAULT '',
    created_at  BIGINT NOT NULL
);

CREATE TABLE members (
    org_id     TEXT NOT NULL REFERENCES organizations (id),
    user_id    TEXT NOT NULL REFERENCES users (id),
    role       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, user_id)
);

CREATE TABLE tokens (
    id            TEXT PRIMARY KEY,
    hash          BYTEA NOT NULL UNIQUE,
    kind          TEXT NOT NULL,
    name          TEXT NOT NULL,
    description   TEXT NOT NULL,
    org_id        TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    pool_id       TEXT NOT NULL,
    job_id        TEXT NOT NULL,
    epoch         BIGINT NOT NULL,
    deployment_id TEXT NOT NULL,
    stack_id      TEXT NOT NULL,
    admin         BIGINT NOT NULL,
    created_by    TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    last_used_at  BIGINT NOT NULL
);
CREATE INDEX tokens_by_user ON tokens (user_id, kind);
CREATE INDEX tokens_by_org ON tokens (org_id, kind);
CREATE INDEX tokens_by_pool ON tokens (pool_id);
CREATE INDEX tokens_by_job ON tokens (job_id);

-- +goose Down
DROP TABLE tokens;
DROP TABLE members;
DROP TABLE users;
DROP TABLE organizations;
DROP TABLE installation;

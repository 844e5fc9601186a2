-- +goose Up

CREATE TABLE stacks (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL REFERENCES organizations (id),
    project        TEXT NOT NULL,
    name           TEXT NOT NULL,
    created_by     TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    version        BIGINT NOT NULL,
    state_blob     TEXT NOT NULL,
    state_schema   BIGINT NOT NULL,
    resource_count BIGINT NOT NULL,
    active_update  TEXT NOT NULL,
    last_update_at BIGINT NOT NULL,
    config         TEXT NOT NULL,
    UNIQUE (org_id, project, name)
);

CREATE TABLE stack_tags (
    stack_id TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (stack_id, name)
);

CREATE TABLE updates (
    id               TEXT PRIMARY KEY,
    stack_id         TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    kind             TEXT NOT NULL,
    preview          BIGINT NOT NULL,
    status           TEXT NOT NULL,
    version          BIGINT NOT NULL,
    requested_by     TEXT NOT NULL,
    deployment_id    TEXT NOT NULL,
    program          TEXT NOT NULL,
    created_at       BIGINT NOT NULL,
    started_at       BIGINT NOT NULL,
    finished_at      BIGINT NOT NULL,
    lease_hash       BYTEA NOT NULL,
    lease_expires_at BIGINT NOT NULL,
    reason           TEXT NOT NULL,
    state_blob       TEXT NOT NULL,
    state_schema     BIGINT NOT NULL,
    resource_count   BIGINT NOT NULL,
    resource_changes TEXT NOT NULL,
    next_sequence    BIGINT NOT NULL
);
CREATE INDEX updates_by_stack ON updates (stack_id, created_at);
CREATE INDEX updates_by_version ON updates (stack_id, version);
CREATE INDEX updates_by_deployment ON updates (deployment_id);
CREATE INDEX updates_by_status ON updates (status, lease_expires_at);

CREATE TABLE engine_events (
    update_id TEXT NOT NULL REFERENCES updates (id) ON DELETE CASCADE,
    sequence  BIGINT NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (update_id, sequence)
);

-- +goose Down
DROP TABLE engine_events;
DROP TABLE updates;
DROP TABLE stack_tags;
DROP TABLE stacks;

-- +goose Up

CREATE TABLE deployment_settings (
    stack_id   TEXT PRIMARY KEY REFERENCES stacks (id) ON DELETE CASCADE,
    document   TEXT NOT NULL,
    source     TEXT NOT NULL,
    version    BIGINT NOT NULL,
    pool_id    TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX deployment_settings_by_pool ON deployment_settings (pool_id);

-- The queue of a stack. blocked_by is a lost deployment whose update might still be running.
CREATE TABLE stack_queues (
    stack_id     TEXT PRIMARY KEY REFERENCES stacks (id) ON DELETE CASCADE,
    last_version BIGINT NOT NULL,
    paused       BIGINT NOT NULL,
    blocked_by   TEXT NOT NULL
);
CREATE INDEX stack_queues_blocked ON stack_queues (blocked_by) WHERE blocked_by <> '';

-- Deployments remain after their stack is removed, because a deployment can remove its own stack.
CREATE TABLE deployments (
    id            TEXT PRIMARY KEY,
    org_id        TEXT NOT NULL REFERENCES organizations (id),
    stack_id      TEXT NOT NULL,
    project       TEXT NOT NULL,
    stack         TEXT NOT NULL,
    version       BIGINT NOT NULL,
    operation     TEXT NOT NULL,
    initiator     TEXT NOT NULL,
    requested_by  TEXT NOT NULL,
    requester     TEXT NOT NULL,
    configuration TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    UNIQUE (stack_id, version)
);
CREATE INDEX deployments_by_org ON deployments (org_id, created_at);

-- The execution of a deployment, and its position in the queue.
CREATE TABLE jobs (
    id                TEXT PRIMARY KEY,
    deployment_id     TEXT NOT NULL REFERENCES deployments (id),
    org_id            TEXT NOT NULL,
    stack_id          TEXT NOT NULL,
    pool_id           TEXT NOT NULL,
    pool_pinned       BIGINT NOT NULL,
    operation         TEXT NOT NULL,
    version           BIGINT NOT NULL,
    skip_intermediate BIGINT NOT NULL,
    status            TEXT NOT NULL,
    reason            TEXT NOT NULL,
    message           TEXT NOT NULL,
    epoch             BIGINT NOT NULL,
    agent_id          TEXT NOT NULL,
    agent_hostname    TEXT NOT NULL,
    agent_version     TEXT NOT NULL,
    poll_id           TEXT NOT NULL,
    stock             BIGINT NOT NULL,
    cancel_requested  BIGINT NOT NULL,
    force_requested   BIGINT NOT NULL,
    steps             TEXT NOT NULL,
    result            TEXT NOT NULL,
    notes             TEXT NOT NULL,
    queued_at         BIGINT NOT NULL,
    claimed_at        BIGINT NOT NULL,
    started_at        BIGINT NOT NULL,
    last_seen_at      BIGINT NOT NULL,
    ended_at          BIGINT NOT NULL,
    modified_at       BIGINT NOT NULL
);
CREATE UNIQUE INDEX jobs_by_deployment ON jobs (deployment_id);
CREATE INDEX jobs_queued ON jobs (pool_id, queued_at, id) WHERE status = 'not-started';
CREATE INDEX jobs_queued_by_stack ON jobs (stack_id, version) WHERE status = 'not-started';
CREATE INDEX jobs_active_by_stack ON jobs (stack_id) WHERE status IN ('accepted', 'running');
CREATE INDEX jobs_active_by_org ON jobs (org_id) WHERE status IN ('accepted', 'running');
CREATE INDEX jobs_by_poll ON jobs (poll_id) WHERE poll_id <> '';
CREATE INDEX jobs_by_org ON jobs (org_id, status);

-- The time at which the servers were last up. Silence counts only while a server is up.
CREATE TABLE server_beat (
    id      BIGINT PRIMARY KEY,
    beat_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE server_beat;
DROP TABLE jobs;
DROP TABLE deployments;
DROP TABLE stack_queues;
DROP TABLE deployment_settings;

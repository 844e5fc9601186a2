-- +goose Up

CREATE TABLE agent_pools (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES organizations (id),
    name         TEXT NOT NULL,
    description  TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    last_job_at  BIGINT NOT NULL
);
CREATE INDEX agent_pools_by_org ON agent_pools (org_id, created_at);

-- The last known state of each agent. Agents are removed after an hour of silence.
CREATE TABLE pool_agents (
    pool_id     TEXT NOT NULL REFERENCES agent_pools (id) ON DELETE CASCADE,
    agent_id    TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    hostname    TEXT NOT NULL,
    ip          TEXT NOT NULL,
    pid         TEXT NOT NULL,
    platform    TEXT NOT NULL,
    version     TEXT NOT NULL,
    every_us    BIGINT NOT NULL,
    live_until  BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    PRIMARY KEY (pool_id, agent_id)
);

-- An organization's settings for all its queues.
CREATE TABLE org_queues (
    org_id       TEXT PRIMARY KEY REFERENCES organizations (id),
    paused       BIGINT NOT NULL,
    default_pool TEXT NOT NULL
);

-- +goose Down
DROP TABLE org_queues;
DROP TABLE pool_agents;
DROP TABLE agent_pools;

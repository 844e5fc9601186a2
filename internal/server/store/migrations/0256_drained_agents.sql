-- +goose Up

-- Agents to which the server hands out no jobs, because an administrator has drained them.
CREATE TABLE drained_agents (
    pool_id    TEXT NOT NULL REFERENCES agent_pools (id) ON DELETE CASCADE,
    agent_id   TEXT NOT NULL,
    drained_by TEXT NOT NULL,
    drained_at BIGINT NOT NULL,
    PRIMARY KEY (pool_id, agent_id)
);

-- +goose Down
DROP TABLE drained_agents;

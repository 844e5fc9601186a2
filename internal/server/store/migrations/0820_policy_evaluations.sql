-- +goose Up

-- Evaluations of the state of a stack with the packs of an audit policy group. At most one waits and at most one is
-- claimed or running for each stack and group. The pool of a waiting one is that of its group at the time of the claim.
CREATE TABLE policy_evaluations (
    id               TEXT PRIMARY KEY,
    org_id           TEXT NOT NULL,
    stack_id         TEXT NOT NULL,
    group_id         TEXT NOT NULL,
    cause            TEXT NOT NULL, -- update, group, request or schedule
    status           TEXT NOT NULL,
    queued_at        BIGINT NOT NULL,
    modified_at      BIGINT NOT NULL,
    epoch            BIGINT NOT NULL DEFAULT 1,
    -- The state's version and the packs, from the time at which the current claim fetched its definition.
    version          BIGINT NOT NULL DEFAULT 0,
    packs            TEXT NOT NULL DEFAULT '',
    reason           TEXT NOT NULL DEFAULT '',
    message          TEXT NOT NULL DEFAULT '',
    pool_id          TEXT NOT NULL DEFAULT '', -- of the claim
    agent_id         TEXT NOT NULL DEFAULT '',
    agent_hostname   TEXT NOT NULL DEFAULT '',
    agent_version    TEXT NOT NULL DEFAULT '',
    agent_platform   TEXT NOT NULL DEFAULT '',
    poll_id          TEXT NOT NULL DEFAULT '',
    stock            BIGINT NOT NULL DEFAULT 0,
    cancel_requested BIGINT NOT NULL DEFAULT 0,
    holder           TEXT NOT NULL DEFAULT '',
    steps            TEXT NOT NULL DEFAULT '',
    notes            TEXT NOT NULL DEFAULT '',
    silences         BIGINT NOT NULL DEFAULT 0,
    claimed_at       BIGINT NOT NULL DEFAULT 0,
    started_at       BIGINT NOT NULL DEFAULT 0,
    last_seen_at     BIGINT NOT NULL DEFAULT 0,
    reported_at      BIGINT NOT NULL DEFAULT 0, -- of the results
    violations       BIGINT NOT NULL DEFAULT 0, -- number of them
    ended_at         BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX policy_evaluations_waiting ON policy_evaluations (stack_id, group_id) WHERE status = 'not-started';
CREATE UNIQUE INDEX policy_evaluations_active ON policy_evaluations (stack_id, group_id) WHERE status IN ('accepted', 'running');
CREATE INDEX policy_evaluations_queued ON policy_evaluations (org_id, queued_at, id) WHERE status = 'not-started';
CREATE INDEX policy_evaluations_active_by_org ON policy_evaluations (org_id, pool_id) WHERE status IN ('accepted', 'running');
CREATE INDEX policy_evaluations_by_poll ON policy_evaluations (poll_id) WHERE poll_id <> '';
CREATE INDEX policy_evaluations_by_stack ON policy_evaluations (stack_id, queued_at);
CREATE INDEX policy_evaluations_by_org ON policy_evaluations (org_id);
CREATE INDEX policy_evaluations_by_group ON policy_evaluations (group_id, queued_at);
CREATE INDEX policy_evaluations_ended ON policy_evaluations (ended_at) WHERE ended_at > 0;

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE policy_evaluations;

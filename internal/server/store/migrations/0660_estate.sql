-- +goose Up

-- One row per stack with what lists of stacks show, written in the transactions of the runs, names, tags and queues.
-- Deleted stacks keep their rows, under the organization and name that their rows in stacks have. Migration 670 adds
-- the rows of existing stacks.
CREATE TABLE estate (
    stack_id        TEXT PRIMARY KEY REFERENCES stacks (id) ON DELETE CASCADE,
    org_id          TEXT NOT NULL,
    project         TEXT NOT NULL,
    name            TEXT NOT NULL,
    rank            BIGINT NOT NULL,
    changed_at      BIGINT NOT NULL,
    version         BIGINT NOT NULL,
    deployments     BIGINT NOT NULL,
    resources       BIGINT NOT NULL,
    held_by         TEXT NOT NULL,
    active          BIGINT NOT NULL,
    queued          BIGINT NOT NULL,
    paused          BIGINT NOT NULL,
    last_kind       TEXT NOT NULL,
    last_deployment BIGINT NOT NULL,
    last_version    BIGINT NOT NULL,
    last_result     TEXT NOT NULL,
    last_by         TEXT NOT NULL,
    last_who        TEXT NOT NULL,
    last_message    TEXT NOT NULL,
    last_started_at BIGINT NOT NULL,
    last_ended_at   BIGINT NOT NULL,
    drift           TEXT NOT NULL,
    drift_at        BIGINT NOT NULL,
    drift_changes   TEXT NOT NULL,
    runs            TEXT NOT NULL,
    tags            TEXT NOT NULL,
    owner           TEXT NOT NULL,
    repository      TEXT NOT NULL
);
-- The orders of lists. The second contains what their other orders, groups and numbers need.
CREATE INDEX estate_by_project ON estate (org_id, project, rank, name);
CREATE INDEX estate_by_rank ON estate (org_id, rank, project, name, owner, repository, changed_at, resources, drift, drift_at, stack_id);

-- The stacks that users have marked.
CREATE TABLE stars (
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    stack_id   TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, stack_id)
);

-- What the client says about an update, in one line and cut off.
ALTER TABLE updates ADD COLUMN message TEXT NOT NULL DEFAULT '';

-- Whether a deployment that only detects drift has found some. Its job fails, because pulumi expected no changes.
ALTER TABLE jobs ADD COLUMN drift_found BIGINT NOT NULL DEFAULT 0;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE jobs DROP COLUMN drift_found;
ALTER TABLE updates DROP COLUMN message;
DROP TABLE stars;
DROP TABLE estate;

-- +goose Up

-- The review stacks of pull requests, as they are wanted and as they are. A row outlives its template,
-- its repository and its integration, because the stack must still be destroyed.
CREATE TABLE review_stacks (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL REFERENCES organizations (id),
    integration_id TEXT NOT NULL,
    repo_id        TEXT NOT NULL,
    pull           BIGINT NOT NULL,
    template_id    TEXT NOT NULL,
    project        TEXT NOT NULL,
    name           TEXT NOT NULL,
    stack_id       TEXT NOT NULL,
    wanted         BIGINT NOT NULL,
    commit_id      TEXT NOT NULL,
    ref            TEXT NOT NULL,
    source         TEXT NOT NULL,
    base           TEXT NOT NULL,
    fork           BIGINT NOT NULL,
    requester      TEXT NOT NULL,
    deployed       TEXT NOT NULL,
    deployed_at    BIGINT NOT NULL,
    ttl            BIGINT NOT NULL,
    destroy_id     TEXT NOT NULL,
    tries          BIGINT NOT NULL,
    problem        TEXT NOT NULL,
    orphan         BIGINT NOT NULL,
    try_at         BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    UNIQUE (template_id, repo_id, pull)
);
CREATE INDEX review_stacks_by_pull ON review_stacks (repo_id, pull);
CREATE INDEX review_stacks_by_stack ON review_stacks (stack_id);
CREATE INDEX review_stacks_due ON review_stacks (try_at);
CREATE INDEX review_stacks_by_org ON review_stacks (org_id, project, name);

-- +goose Down
DROP TABLE review_stacks;

-- +goose Up

-- What forges are to show about commits and pull requests. pull is 0 for pushes and tags. The comment
-- of a pull request has no commit and no context. A report is due while wanted, which counts the
-- changes, is above sent.
CREATE TABLE vcs_reports (
    id             TEXT PRIMARY KEY,
    integration_id TEXT NOT NULL,
    repo_id        TEXT NOT NULL REFERENCES vcs_repos (id) ON DELETE CASCADE,
    pull           BIGINT NOT NULL,
    commit_id      TEXT NOT NULL,
    context        TEXT NOT NULL,
    stack_id       TEXT NOT NULL,
    note           TEXT NOT NULL,
    remote_id      TEXT NOT NULL,
    wanted         BIGINT NOT NULL,
    sent           BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    error          TEXT NOT NULL,
    wanted_at      BIGINT NOT NULL,
    try_at         BIGINT NOT NULL,
    sent_at        BIGINT NOT NULL,
    UNIQUE (repo_id, pull, commit_id, context)
);
CREATE INDEX vcs_reports_due ON vcs_reports (integration_id, try_at) WHERE wanted > sent;
CREATE INDEX vcs_reports_by_sent ON vcs_reports (integration_id, sent_at);
CREATE INDEX vcs_reports_by_age ON vcs_reports (wanted_at);

-- +goose Down
DROP TABLE vcs_reports;

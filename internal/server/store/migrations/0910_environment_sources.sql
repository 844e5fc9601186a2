-- +goose Up

-- The repository from which an organization's environments come.
CREATE TABLE environment_sources (
    org_id         TEXT PRIMARY KEY REFERENCES organizations (id) ON DELETE CASCADE,
    integration_id TEXT NOT NULL REFERENCES vcs_integrations (id) ON DELETE CASCADE,
    repository     TEXT NOT NULL, -- name
    remote_id      TEXT NOT NULL, -- the forge's id of the repository; '' until it is known
    branch         TEXT NOT NULL,
    folder         TEXT NOT NULL,
    deletes        BIGINT NOT NULL, -- 1 if environments that came from the repository are deleted when it no longer contains them
    checks         BIGINT NOT NULL, -- 1 if pull requests are checked
    created_by     TEXT NOT NULL, -- name of the caller
    created_at     BIGINT NOT NULL,
    modified_at    BIGINT NOT NULL,
    due_at         BIGINT NOT NULL, -- time of the next poll
    hook_at        BIGINT NOT NULL, -- time of the last delivery; 0 for none
    hooked_at      BIGINT NOT NULL, -- when the integration changed last before its webhook was registered; 0 for never
    failures       BIGINT NOT NULL, -- polls that failed since one succeeded
    problem        TEXT NOT NULL, -- of the last poll, or of the newest commit
    tried          TEXT NOT NULL, -- the newest commit whose definitions were read
    applied        TEXT NOT NULL, -- the last commit whose definitions were applied
    applied_at     BIGINT NOT NULL,
    pull_cursor    TEXT NOT NULL
);
CREATE INDEX environment_sources_by_integration ON environment_sources (integration_id);
CREATE INDEX environment_sources_due ON environment_sources (due_at);

-- The environments that came from the repository of their organization.
CREATE TABLE environment_origins (
    environment_id TEXT PRIMARY KEY REFERENCES environments (id) ON DELETE CASCADE,
    path           TEXT NOT NULL, -- of the file in the folder
    commit_id      TEXT NOT NULL  -- that made the last change
);

-- The checked commits of open pull requests.
CREATE TABLE environment_checks (
    org_id    TEXT NOT NULL REFERENCES environment_sources (org_id) ON DELETE CASCADE,
    pull      BIGINT NOT NULL, -- number of the pull request
    commit_id TEXT NOT NULL,
    report_id TEXT NOT NULL, -- of the forge
    PRIMARY KEY (org_id, pull)
);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE environment_checks;
DROP TABLE environment_origins;
DROP TABLE environment_sources;

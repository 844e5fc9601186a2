-- +goose Up

-- The secrets are encrypted. credential contains JSON.
CREATE TABLE vcs_integrations (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES organizations (id),
    provider     TEXT NOT NULL,
    flavor       TEXT NOT NULL,
    name         TEXT NOT NULL,
    base_url     TEXT NOT NULL,
    api_url      TEXT NOT NULL,
    owner        TEXT NOT NULL,
    project      TEXT NOT NULL,
    app_id       TEXT NOT NULL,
    installation TEXT NOT NULL,
    options      TEXT NOT NULL,
    credential   BYTEA NOT NULL,
    secret       BYTEA NOT NULL,
    old_secret   BYTEA NOT NULL,
    old_until    BIGINT NOT NULL,
    refused_at   BIGINT NOT NULL,
    problem      TEXT NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    modified_at  BIGINT NOT NULL,
    UNIQUE (org_id, provider, name)
);
CREATE INDEX vcs_integrations_by_app ON vcs_integrations (app_id) WHERE app_id <> '';

-- A repository that a stack watches.
CREATE TABLE vcs_repos (
    id             TEXT PRIMARY KEY,
    integration_id TEXT NOT NULL REFERENCES vcs_integrations (id) ON DELETE CASCADE,
    remote_id      TEXT NOT NULL,
    name           TEXT NOT NULL,
    clone_url      TEXT NOT NULL,
    tags_known     BIGINT NOT NULL,
    hook_at        BIGINT NOT NULL,
    hooked_at      BIGINT NOT NULL,
    poll_at        BIGINT NOT NULL,
    polled_at      BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    problem        TEXT NOT NULL,
    pull_cursor    TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    UNIQUE (integration_id, remote_id)
);
CREATE INDEX vcs_repos_by_name ON vcs_repos (integration_id, name);
CREATE INDEX vcs_repos_to_poll ON vcs_repos (poll_at);

-- What the settings of a stack say about a repository. repo_id is empty until the forge was asked.
CREATE TABLE vcs_watches (
    stack_id       TEXT PRIMARY KEY REFERENCES stacks (id) ON DELETE CASCADE,
    integration_id TEXT NOT NULL REFERENCES vcs_integrations (id) ON DELETE CASCADE,
    repo_id        TEXT NOT NULL,
    name           TEXT NOT NULL,
    branch         TEXT NOT NULL,
    deploy_commits BIGINT NOT NULL,
    preview_pulls  BIGINT NOT NULL,
    template       BIGINT NOT NULL,
    deploy_tags    BIGINT NOT NULL,
    deploy_pull    BIGINT NOT NULL,
    paths          TEXT NOT NULL,
    tag_filters    TEXT NOT NULL,
    labels         TEXT NOT NULL,
    find_at        BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    problem        TEXT NOT NULL
);
CREATE INDEX vcs_watches_by_repo ON vcs_watches (repo_id) WHERE repo_id <> '';
CREATE INDEX vcs_watches_by_name ON vcs_watches (integration_id, name);
CREATE INDEX vcs_watches_to_find ON vcs_watches (find_at) WHERE repo_id = '';

-- The ledger. An empty commit means that the ref does not exist.
CREATE TABLE vcs_refs (
    repo_id   TEXT NOT NULL REFERENCES vcs_repos (id) ON DELETE CASCADE,
    ref       TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    recorded  BIGINT NOT NULL,
    seen_at   BIGINT NOT NULL,
    PRIMARY KEY (repo_id, ref)
);

CREATE TABLE vcs_events (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL,
    integration_id TEXT NOT NULL REFERENCES vcs_integrations (id) ON DELETE CASCADE,
    repo_id        TEXT NOT NULL,
    repo_name      TEXT NOT NULL,
    delivery_id    TEXT NOT NULL,
    source         TEXT NOT NULL,
    kind           TEXT NOT NULL,
    subject        TEXT NOT NULL,
    before_id      TEXT NOT NULL,
    after_id       TEXT NOT NULL,
    document       TEXT NOT NULL,
    done           BIGINT NOT NULL,
    reason         TEXT NOT NULL,
    detail         TEXT NOT NULL,
    received_at    BIGINT NOT NULL,
    try_at         BIGINT NOT NULL,
    tries          BIGINT NOT NULL,
    done_at        BIGINT NOT NULL,
    UNIQUE (integration_id, delivery_id, kind, subject)
);
CREATE INDEX vcs_events_pending ON vcs_events (try_at, received_at) WHERE done = 0;
CREATE INDEX vcs_events_by_org ON vcs_events (org_id, received_at);
CREATE INDEX vcs_events_by_subject ON vcs_events (repo_id, subject, before_id, after_id);
CREATE INDEX vcs_events_by_age ON vcs_events (received_at);

CREATE TABLE vcs_decisions (
    id            TEXT PRIMARY KEY,
    event_id      TEXT NOT NULL REFERENCES vcs_events (id) ON DELETE CASCADE,
    stack_id      TEXT NOT NULL,
    action        TEXT NOT NULL,
    reason        TEXT NOT NULL,
    detail        TEXT NOT NULL,
    commit_id     TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    version       BIGINT NOT NULL,
    decided_at    BIGINT NOT NULL
);
CREATE INDEX vcs_decisions_by_event ON vcs_decisions (event_id);
CREATE INDEX vcs_decisions_by_stack ON vcs_decisions (stack_id, decided_at);

CREATE TABLE vcs_pulls (
    id          TEXT PRIMARY KEY,
    repo_id     TEXT NOT NULL REFERENCES vcs_repos (id) ON DELETE CASCADE,
    number      BIGINT NOT NULL,
    state       TEXT NOT NULL,
    head        TEXT NOT NULL,
    base        TEXT NOT NULL,
    source      TEXT NOT NULL,
    ref         TEXT NOT NULL,
    title       TEXT NOT NULL,
    url         TEXT NOT NULL,
    draft       BIGINT NOT NULL,
    fork        BIGINT NOT NULL,
    bot         BIGINT NOT NULL,
    author_id   TEXT NOT NULL,
    author      TEXT NOT NULL,
    labels      TEXT NOT NULL,
    approved    TEXT NOT NULL,
    approved_by TEXT NOT NULL,
    approved_at BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    read_at     BIGINT NOT NULL,
    UNIQUE (repo_id, number)
);
CREATE INDEX vcs_pulls_open ON vcs_pulls (repo_id, number) WHERE state = 'open';

-- Each commit of a pull request is deployed once for each stack, action and cause.
CREATE TABLE vcs_runs (
    id            TEXT PRIMARY KEY,
    stack_id      TEXT NOT NULL,
    pull_id       TEXT NOT NULL REFERENCES vcs_pulls (id) ON DELETE CASCADE,
    commit_id     TEXT NOT NULL,
    action        TEXT NOT NULL,
    cause         TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    UNIQUE (stack_id, pull_id, commit_id, action, cause)
);
CREATE INDEX vcs_runs_by_pull ON vcs_runs (pull_id);

-- What a deployment checks out, if a repository of an integration contains its program. credential
-- is encrypted, and empty until the job's definition was fetched.
CREATE TABLE vcs_checkouts (
    deployment_id  TEXT PRIMARY KEY REFERENCES deployments (id) ON DELETE CASCADE,
    integration_id TEXT NOT NULL,
    repo_id        TEXT NOT NULL,
    commit_id      TEXT NOT NULL,
    ref            TEXT NOT NULL,
    branch         TEXT NOT NULL,
    pull           BIGINT NOT NULL,
    fork           BIGINT NOT NULL,
    credential     BYTEA NOT NULL,
    expires_at     BIGINT NOT NULL
);
CREATE INDEX vcs_checkouts_by_commit ON vcs_checkouts (repo_id, commit_id);
CREATE INDEX vcs_checkouts_by_pull ON vcs_checkouts (repo_id, pull) WHERE pull > 0;

-- Queued deployments of a stack supersede each other only within a group, such as a pull request.
ALTER TABLE jobs ADD COLUMN queue_group TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE jobs DROP COLUMN queue_group;
DROP TABLE vcs_checkouts;
DROP TABLE vcs_runs;
DROP TABLE vcs_pulls;
DROP TABLE vcs_decisions;
DROP TABLE vcs_events;
DROP TABLE vcs_refs;
DROP TABLE vcs_watches;
DROP TABLE vcs_repos;
DROP TABLE vcs_integrations;

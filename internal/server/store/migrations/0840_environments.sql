-- +goose Up

-- The permission that members have on every environment of their organization: 0 none, 1 read, 2 open, 3 write, 4 admin.
-- Where members may see no stack, they may open no environment.
ALTER TABLE organizations ADD COLUMN environment_permission BIGINT NOT NULL DEFAULT 2;
UPDATE organizations SET environment_permission = 0 WHERE stack_permission = 0;

-- Environments of organizations.
CREATE TABLE environments (
    id          TEXT PRIMARY KEY,
    org_id      TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    project     TEXT NOT NULL,
    name        TEXT NOT NULL,
    created_by  TEXT NOT NULL, -- id of a user, or of the organization if one of its tokens created it; '' for none
    sealed_key  BYTEA NOT NULL, -- of the secrets in the definitions, sealed by the key ring
    last_number BIGINT NOT NULL, -- of its revisions
    protected   BIGINT NOT NULL, -- 1 if it cannot be deleted
    created_at  BIGINT NOT NULL,
    modified_at BIGINT NOT NULL,
    UNIQUE (org_id, project, name)
);

-- Revisions of environments, which never change. A retracted revision is replaced by another one.
CREATE TABLE environment_revisions (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    number         BIGINT NOT NULL,
    definition     TEXT NOT NULL, -- YAML, in which secrets are ciphertexts
    created_by     TEXT NOT NULL, -- name of the caller
    created_at     BIGINT NOT NULL,
    replacement    BIGINT NOT NULL, -- number of the revision that replaces a retracted one, or 0
    retracted_by   TEXT NOT NULL,
    retracted_at   BIGINT NOT NULL,
    reason         TEXT NOT NULL, -- of the retraction
    PRIMARY KEY (environment_id, number)
);

-- Names of revisions. The newest revision has the name latest, too.
CREATE TABLE environment_revision_tags (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    name           TEXT NOT NULL,
    number         BIGINT NOT NULL,
    edited_by      TEXT NOT NULL, -- name of the caller
    created_at     BIGINT NOT NULL,
    modified_at    BIGINT NOT NULL,
    PRIMARY KEY (environment_id, name)
);

CREATE TABLE environment_tags (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    name           TEXT NOT NULL,
    value          TEXT NOT NULL,
    edited_by      TEXT NOT NULL, -- name of the caller
    created_at     BIGINT NOT NULL,
    modified_at    BIGINT NOT NULL,
    PRIMARY KEY (environment_id, name)
);

-- The environments of the same organization that revisions import. Those need not exist any more.
CREATE TABLE environment_imports (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    number         BIGINT NOT NULL,
    project        TEXT NOT NULL,
    name           TEXT NOT NULL,
    version        TEXT NOT NULL, -- number or tag; latest if the definition names none
    PRIMARY KEY (environment_id, number, project, name, version)
);
CREATE INDEX environment_imports_by_name ON environment_imports (project, name);

-- The environments that updates of stacks have opened.
CREATE TABLE stack_environments (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    stack_id       TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    stack_version  BIGINT NOT NULL, -- of the update
    version        TEXT NOT NULL, -- of the environment: number or tag; latest if the stack names none
    PRIMARY KEY (environment_id, stack_id, stack_version, version)
);
CREATE INDEX stack_environments_by_stack ON stack_environments (stack_id);

CREATE TABLE team_environments (
    team_id        TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    permission     BIGINT NOT NULL,
    PRIMARY KEY (team_id, environment_id)
);
CREATE INDEX team_environments_by_environment ON team_environments (environment_id);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE team_environments;
DROP TABLE stack_environments;
DROP TABLE environment_imports;
DROP TABLE environment_tags;
DROP TABLE environment_revision_tags;
DROP TABLE environment_revisions;
DROP TABLE environments;
ALTER TABLE organizations DROP COLUMN environment_permission;

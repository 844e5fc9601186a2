-- +goose Up

-- The permission that members have on every stack of their organization. In existing organizations,
-- members could do everything with every stack, and this remains so until an administrator changes
-- it.
ALTER TABLE organizations ADD COLUMN stack_permission BIGINT NOT NULL DEFAULT 103;

CREATE TABLE teams (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES organizations (id),
    name         TEXT NOT NULL,
    display_name TEXT NOT NULL,
    description  TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    UNIQUE (org_id, name)
);

CREATE TABLE team_members (
    team_id    TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id    TEXT NOT NULL REFERENCES users (id),
    role       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, user_id)
);
CREATE INDEX team_members_by_user ON team_members (user_id);

CREATE TABLE team_stacks (
    team_id    TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    stack_id   TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    permission BIGINT NOT NULL,
    PRIMARY KEY (team_id, stack_id)
);
CREATE INDEX team_stacks_by_stack ON team_stacks (stack_id);

CREATE TABLE collaborators (
    stack_id   TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    user_id    TEXT NOT NULL REFERENCES users (id),
    permission BIGINT NOT NULL,
    PRIMARY KEY (stack_id, user_id)
);
CREATE INDEX collaborators_by_user ON collaborators (user_id);

-- Tokens of teams named their team in the description, although no teams existed. Their teams are
-- created without any stack.
ALTER TABLE tokens ADD COLUMN team_id TEXT NOT NULL DEFAULT '';
INSERT INTO teams (id, org_id, name, display_name, description, created_at)
    SELECT org_id || ':' || description, org_id, description, description, '', MIN(created_at) FROM tokens WHERE kind = 'team'
    GROUP BY org_id, description;
UPDATE tokens SET team_id = org_id || ':' || description, description = '' WHERE kind = 'team';
CREATE INDEX tokens_by_team ON tokens (team_id);

-- +goose Down
DROP INDEX tokens_by_team;
UPDATE tokens SET description = (SELECT name FROM teams WHERE id = team_id) WHERE kind = 'team';
ALTER TABLE tokens DROP COLUMN team_id;
DROP TABLE collaborators;
DROP TABLE team_stacks;
DROP TABLE team_members;
DROP TABLE teams;
ALTER TABLE organizations DROP COLUMN stack_permission;

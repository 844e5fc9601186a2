-- +goose Up

-- Grants: jobs of stacks may open the environment environment_id. The columns are those of stack_grants.
CREATE TABLE environment_grants (
    id             TEXT PRIMARY KEY,
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    reader_id      TEXT REFERENCES stacks (id) ON DELETE CASCADE,
    project        TEXT NOT NULL,
    tag_name       TEXT NOT NULL,
    tag_value      TEXT NOT NULL,
    previews       BIGINT NOT NULL,
    created_by     TEXT NOT NULL,
    created_at     BIGINT NOT NULL
);
CREATE INDEX environment_grants_by_environment ON environment_grants (environment_id);
CREATE INDEX environment_grants_by_reader ON environment_grants (reader_id) WHERE reader_id IS NOT NULL;
CREATE INDEX environment_grants_by_project ON environment_grants (project) WHERE project <> '';
CREATE INDEX environment_grants_by_tag ON environment_grants (tag_name, tag_value) WHERE tag_name <> '';

-- Stacks that a grant to a project or a tag does not cover, because a caller who may not open the environment put them
-- into the project, or gave them the tag.
CREATE TABLE environment_grant_exclusions (
    grant_id TEXT NOT NULL REFERENCES environment_grants (id) ON DELETE CASCADE,
    stack_id TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    PRIMARY KEY (grant_id, stack_id)
);
CREATE INDEX environment_grant_exclusions_by_stack ON environment_grant_exclusions (stack_id);

-- The environments that evaluations of a policy group open for a pack.
CREATE TABLE policy_pack_environments (
    group_id       TEXT NOT NULL,
    pack_id        TEXT NOT NULL,
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    PRIMARY KEY (group_id, pack_id, environment_id),
    FOREIGN KEY (group_id, pack_id) REFERENCES policy_group_packs (group_id, pack_id) ON DELETE CASCADE
);
CREATE INDEX policy_pack_environments_by_environment ON policy_pack_environments (environment_id);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE policy_pack_environments;
DROP TABLE environment_grant_exclusions;
DROP TABLE environment_grants;

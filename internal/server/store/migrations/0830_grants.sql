-- +goose Up

-- Grants: jobs of other stacks may read the outputs of the stack stack_id. Exactly one of reader_id, project and tag_name is
-- set: the readers are one stack, the stacks of a project, or those with a tag. Without previews, a grant covers only
-- updates of what the settings of the reader name.
CREATE TABLE stack_grants (
    id         TEXT PRIMARY KEY,
    stack_id   TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    reader_id  TEXT REFERENCES stacks (id) ON DELETE CASCADE,
    project    TEXT NOT NULL,
    tag_name   TEXT NOT NULL,
    tag_value  TEXT NOT NULL,
    previews   BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX stack_grants_by_stack ON stack_grants (stack_id);
CREATE INDEX stack_grants_by_reader ON stack_grants (reader_id) WHERE reader_id IS NOT NULL;
CREATE INDEX stack_grants_by_project ON stack_grants (project) WHERE project <> '';
CREATE INDEX stack_grants_by_tag ON stack_grants (tag_name, tag_value) WHERE tag_name <> '';

-- Stacks that a grant to a project or a tag does not cover, because a caller who may not read the granting stack put them
-- into the project, or gave them the tag.
CREATE TABLE grant_exclusions (
    grant_id TEXT NOT NULL REFERENCES stack_grants (id) ON DELETE CASCADE,
    stack_id TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    PRIMARY KEY (grant_id, stack_id)
);
CREATE INDEX grant_exclusions_by_stack ON grant_exclusions (stack_id);

-- Whether updates of a stack may read the outputs of all stacks of their project. Existing organizations keep their rule.
ALTER TABLE organizations ADD COLUMN project_reads BIGINT NOT NULL DEFAULT 0;

-- Older programs can use the schema after this.

-- +goose Down
ALTER TABLE organizations DROP COLUMN project_reads;
DROP TABLE grant_exclusions;
DROP TABLE stack_grants;

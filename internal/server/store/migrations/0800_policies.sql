-- +goose Up

-- Policy packs of organizations. A pack remains without versions when all are removed, so that neither a number nor a
-- tag of it ever names something else: clients keep packs by name and tag.
CREATE TABLE policy_packs (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    display_name TEXT NOT NULL,
    runtime      TEXT NOT NULL, -- '' if no version has named one
    last_number  BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    UNIQUE (org_id, name)
);

-- Versions of policy packs. The status is incomplete until the upload is confirmed, then complete; removed versions
-- keep their number and tag. A tag is '' if the pack has none.
CREATE TABLE policy_pack_versions (
    id           TEXT PRIMARY KEY,
    pack_id      TEXT NOT NULL REFERENCES policy_packs (id) ON DELETE CASCADE,
    number       BIGINT NOT NULL,
    tag          TEXT NOT NULL,
    status       TEXT NOT NULL,
    display_name TEXT NOT NULL,
    runtime      TEXT NOT NULL,
    details      TEXT NOT NULL, -- JSON: description, readme, provider, tags, repository, metadata
    policies     TEXT NOT NULL, -- JSON: the policies as the client published them
    levels       TEXT NOT NULL, -- JSON: the name and the default level of each policy
    configurable BIGINT NOT NULL, -- 0 if the pack ignores its configuration and the levels in it
    blob         TEXT NOT NULL, -- key of the archive, '' before the upload and after the removal
    size         BIGINT NOT NULL,
    sha256       TEXT NOT NULL,
    created_by   TEXT NOT NULL, -- name of the caller
    created_at   BIGINT NOT NULL,
    completed_at BIGINT NOT NULL,
    UNIQUE (pack_id, number)
);
CREATE UNIQUE INDEX policy_pack_versions_by_tag ON policy_pack_versions (pack_id, tag) WHERE tag <> '';
CREATE UNIQUE INDEX policy_pack_versions_by_blob ON policy_pack_versions (blob) WHERE blob <> '';
CREATE INDEX policy_pack_versions_incomplete ON policy_pack_versions (created_at) WHERE status = 'incomplete';

-- Policy groups. The default groups have no row until they differ from an empty one.
CREATE TABLE policy_groups (
    id          TEXT PRIMARY KEY,
    org_id      TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    entity_type TEXT NOT NULL,
    mode        TEXT NOT NULL,
    pool_id     TEXT NOT NULL, -- of evaluations; '' for the organization's default
    is_default  BIGINT NOT NULL,
    all_stacks  BIGINT NOT NULL, -- 1 if all stacks are members except those that have left
    created_at  BIGINT NOT NULL,
    modified_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);
CREATE INDEX policy_groups_by_pool ON policy_groups (pool_id) WHERE pool_id <> '';

-- The stacks that were added to a group (member = 1), or have left a group of all stacks (member = 0).
CREATE TABLE policy_group_stacks (
    group_id TEXT NOT NULL REFERENCES policy_groups (id) ON DELETE CASCADE,
    stack_id TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    member   BIGINT NOT NULL,
    PRIMARY KEY (group_id, stack_id)
);
CREATE INDEX policy_group_stacks_by_stack ON policy_group_stacks (stack_id);

-- The packs that are enabled in a group, with the version at that time.
CREATE TABLE policy_group_packs (
    group_id     TEXT NOT NULL REFERENCES policy_groups (id) ON DELETE CASCADE,
    pack_id      TEXT NOT NULL REFERENCES policy_packs (id) ON DELETE CASCADE,
    version_id   TEXT NOT NULL REFERENCES policy_pack_versions (id) ON DELETE CASCADE,
    config       TEXT NOT NULL, -- JSON: the configuration of each policy; '' for none
    environments TEXT NOT NULL,
    modified_at  BIGINT NOT NULL,
    PRIMARY KEY (group_id, pack_id)
);
CREATE INDEX policy_group_packs_by_version ON policy_group_packs (version_id);
CREATE INDEX policy_group_packs_by_pack ON policy_group_packs (pack_id);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE policy_group_packs;
DROP TABLE policy_group_stacks;
DROP TABLE policy_groups;
DROP TABLE policy_pack_versions;
DROP TABLE policy_packs;

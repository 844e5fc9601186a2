-- +goose Up

-- Deleted stacks, until they are restored or purged. Their rows in stacks, and in the tables that refer to it,
-- remain. But in stacks they have another organization, deleted-stacks, and their id as name, so that the name
-- is free, and no server finds them by organization. Here are their organization and name. purged is set when
-- the removal of their history has begun, so that they can no longer be restored.
CREATE TABLE deleted_stacks (
    stack_id   TEXT PRIMARY KEY REFERENCES stacks (id) ON DELETE CASCADE,
    org_id     TEXT NOT NULL REFERENCES organizations (id),
    name       TEXT NOT NULL,
    deleted_by TEXT NOT NULL,
    deleted_at BIGINT NOT NULL,
    purged     BIGINT NOT NULL
);
INSERT INTO organizations (id, name, display_name, created_at) VALUES ('deleted-stacks', '/deleted-stacks', '', 0);
CREATE INDEX deleted_stacks_by_org ON deleted_stacks (org_id, deleted_at);
CREATE INDEX deleted_stacks_by_age ON deleted_stacks (deleted_at);

-- The stacks that exist. A migration that changes the columns of stacks creates the view again.
CREATE VIEW live_stacks AS SELECT * FROM stacks WHERE org_id <> 'deleted-stacks';

-- The organizations of all stacks, also of deleted ones.
CREATE VIEW stack_owners AS SELECT s.id, COALESCE(d.org_id, s.org_id) AS org_id
    FROM stacks s LEFT JOIN deleted_stacks d ON d.stack_id = s.id;

-- Older programs can use the schema after this.

-- +goose Down
DROP VIEW stack_owners;
DROP VIEW live_stacks;
DROP TABLE deleted_stacks;
DELETE FROM stacks WHERE org_id = 'deleted-stacks';
DELETE FROM organizations WHERE id = 'deleted-stacks';

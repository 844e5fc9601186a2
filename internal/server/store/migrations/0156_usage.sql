-- +goose Up

-- Changes of the numbers of resources in stacks' states. Rows remain after their stack is removed,
-- because past usage does not change.
CREATE TABLE resource_changes (
    org_id     TEXT NOT NULL REFERENCES organizations (id),
    stack_id   TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    change     BIGINT NOT NULL
);
CREATE INDEX resource_changes_by_org ON resource_changes (org_id, changed_at);
CREATE INDEX jobs_by_end ON jobs (org_id, ended_at) WHERE started_at > 0;

-- What is known about the past: the resources after each finished update, and now.
INSERT INTO resource_changes
SELECT s.org_id, u.stack_id, u.finished_at, u.resource_count - LAG(u.resource_count, 1, 0) OVER (PARTITION BY u.stack_id ORDER BY u.version)
FROM updates u JOIN stacks s ON s.id = u.stack_id
WHERE u.preview = 0 AND u.finished_at > 0;
INSERT INTO resource_changes
SELECT s.org_id, s.id, CASE WHEN s.last_update_at > 0 THEN s.last_update_at ELSE s.created_at END,
    s.resource_count - COALESCE((SELECT SUM(c.change) FROM resource_changes c WHERE c.stack_id = s.id), 0)
FROM stacks s;
DELETE FROM resource_changes WHERE change = 0;

-- +goose Down
DROP INDEX jobs_by_end;
DROP TABLE resource_changes;

-- +goose Up

-- The organization in whose list of activity an update has an entry; '' if it has none: previews, updates that have not
-- started, and updates of deployments that have entries of their own.
ALTER TABLE updates ADD COLUMN listed_in TEXT NOT NULL DEFAULT '';
UPDATE updates SET listed_in = (SELECT k.org_id FROM stack_owners k WHERE k.id = updates.stack_id)
WHERE preview = 0 AND started_at > 0 AND (deployment_id = ''
    OR EXISTS (SELECT 1 FROM deployments d WHERE d.id = updates.deployment_id AND d.operation NOT IN ('update', 'destroy', 'refresh', 'remediate-drift')));
CREATE INDEX updates_listed ON updates (listed_in, started_at, id, stack_id) WHERE listed_in <> '';

-- The deployments that write, and those that found drift.
CREATE INDEX jobs_writing ON jobs (org_id, queued_at, deployment_id, stack_id) WHERE operation IN ('update', 'destroy', 'refresh', 'remediate-drift');
CREATE INDEX jobs_drift ON jobs (org_id, ended_at, deployment_id, stack_id) WHERE drift_found = 1;

-- The audit log without reads.
CREATE INDEX audit_entries_changes ON audit_entries (org_id, at, id) WHERE reads = 0;

-- When users have last opened the list of activity of an organization, and the end of the visit before that one.
CREATE TABLE activity_visits (
    user_id   TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    org_id    TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    opened_at BIGINT NOT NULL,
    before_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, org_id)
);

-- Older programs can use the schema after this.

-- +goose Down
DROP TABLE activity_visits;
DROP INDEX audit_entries_changes;
DROP INDEX jobs_drift;
DROP INDEX jobs_writing;
DROP INDEX updates_listed;
ALTER TABLE updates DROP COLUMN listed_in;

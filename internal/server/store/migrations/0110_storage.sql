-- +goose Up

-- What an organization stores: the bytes of the last measurement, and the bytes of the states that
-- were imported since then.
CREATE TABLE organization_storage (
    org_id   TEXT PRIMARY KEY REFERENCES organizations (id),
    measured BIGINT NOT NULL,
    imported BIGINT NOT NULL
);

-- The stored bytes of a finished update's events and of a finished job's log. -1 means not measured.
ALTER TABLE updates ADD COLUMN event_bytes BIGINT NOT NULL DEFAULT -1;
ALTER TABLE jobs ADD COLUMN log_bytes BIGINT NOT NULL DEFAULT -1;

CREATE INDEX updates_unmeasured ON updates (finished_at) WHERE event_bytes < 0 AND finished_at > 0;
CREATE INDEX updates_by_event_bytes ON updates (stack_id, event_bytes) WHERE event_bytes > 0;
CREATE INDEX jobs_unmeasured ON jobs (ended_at) WHERE log_bytes < 0 AND ended_at > 0;
CREATE INDEX jobs_by_log_bytes ON jobs (org_id, log_bytes) WHERE log_bytes > 0;

-- +goose Down
DROP INDEX jobs_by_log_bytes;
DROP INDEX jobs_unmeasured;
DROP INDEX updates_by_event_bytes;
DROP INDEX updates_unmeasured;
ALTER TABLE jobs DROP COLUMN log_bytes;
ALTER TABLE updates DROP COLUMN event_bytes;
DROP TABLE organization_storage;

-- +goose Up

-- Data that the server removed because of its age.
ALTER TABLE updates ADD COLUMN state_expired BIGINT NOT NULL DEFAULT 0;
ALTER TABLE updates ADD COLUMN events_expired BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN log_expired BIGINT NOT NULL DEFAULT 0;

CREATE INDEX updates_with_state ON updates (stack_id, version) WHERE state_blob <> '' AND preview = 0;
CREATE INDEX updates_with_events ON updates (finished_at) WHERE events_expired = 0 AND finished_at > 0;
CREATE INDEX jobs_with_log ON jobs (ended_at) WHERE log_expired = 0 AND ended_at > 0;

-- +goose Down
DROP INDEX jobs_with_log;
DROP INDEX updates_with_events;
DROP INDEX updates_with_state;
ALTER TABLE jobs DROP COLUMN log_expired;
ALTER TABLE updates DROP COLUMN events_expired;
ALTER TABLE updates DROP COLUMN state_expired;

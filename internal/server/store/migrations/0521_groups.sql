-- +goose Up

-- Of the jobs of an organization with the same group, none is claimed while another one is claimed or running.
ALTER TABLE jobs ADD COLUMN concurrency_group TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_active_by_group ON jobs (org_id, concurrency_group) WHERE status IN ('accepted', 'running') AND concurrency_group <> '';
-- The group in the stack's settings, for its next jobs.
ALTER TABLE stack_queues ADD COLUMN concurrency_group TEXT NOT NULL DEFAULT '';

-- +goose Down

ALTER TABLE stack_queues DROP COLUMN concurrency_group;
DROP INDEX jobs_active_by_group;
ALTER TABLE jobs DROP COLUMN concurrency_group;

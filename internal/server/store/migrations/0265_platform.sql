-- +goose Up

-- The platform of the agent that claimed the job, for the job's definition.
ALTER TABLE jobs ADD COLUMN agent_platform TEXT NOT NULL DEFAULT '';
UPDATE jobs SET agent_platform = COALESCE((SELECT platform FROM pool_agents a WHERE a.pool_id = jobs.pool_id AND a.agent_id = jobs.agent_id), '')
    WHERE status IN ('accepted', 'running');

-- +goose Down
ALTER TABLE jobs DROP COLUMN agent_platform;

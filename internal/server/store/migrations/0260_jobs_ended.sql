-- +goose Up

-- The jobs that the agents of a pool have run, for the numbers on the pool's page.
CREATE INDEX jobs_ended ON jobs (pool_id, ended_at, agent_id) WHERE started_at > 0;

-- +goose Down
DROP INDEX jobs_ended;

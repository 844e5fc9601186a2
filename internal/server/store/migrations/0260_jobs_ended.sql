-- +goose Up

-- The jobs that the agents of a pool have finished, for the numbers on the pool's page.
CREATE INDEX jobs_ended ON jobs (pool_id, ended_at, agent_id, started_at) WHERE ended_at > 0;

-- +goose Down
DROP INDEX jobs_ended;

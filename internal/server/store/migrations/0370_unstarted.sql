-- +goose Up

-- Updates that no client has started. The server removes old ones.
CREATE INDEX updates_unstarted ON updates (created_at) WHERE status = 'not started';

-- +goose Down
DROP INDEX updates_unstarted;

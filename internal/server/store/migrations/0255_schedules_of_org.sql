-- +goose Up

-- Lists the schedules of an organization in the order in which they are due, paused ones last.
CREATE INDEX schedules_by_next ON schedules (paused, next_at, id) WHERE fired = 0;

-- +goose Down
DROP INDEX schedules_by_next;

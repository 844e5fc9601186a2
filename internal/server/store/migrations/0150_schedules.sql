-- +goose Up

-- The schedules of stacks. next_at is the time at which a schedule is due, or 0 if it never fires
-- again. try_at is the time of the next attempt: next_at, or later after an attempt that failed.
-- armed_at is the time at which next_at was computed; if it is in the future, the clock was set
-- back. actor is the user, team or organization on whose behalf deployments are created.
CREATE TABLE schedules (
    id              TEXT PRIMARY KEY,
    stack_id        TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    kind            TEXT NOT NULL,
    cron            TEXT NOT NULL,
    once_at         BIGINT NOT NULL,
    request         TEXT NOT NULL,
    actor           TEXT NOT NULL,
    paused          BIGINT NOT NULL,
    next_at         BIGINT NOT NULL,
    try_at          BIGINT NOT NULL,
    tries           BIGINT NOT NULL,
    armed_at        BIGINT NOT NULL,
    fired           BIGINT NOT NULL,
    last_at         BIGINT NOT NULL,
    last_deployment TEXT NOT NULL,
    created_at      BIGINT NOT NULL,
    modified_at     BIGINT NOT NULL
);
CREATE INDEX schedules_by_stack ON schedules (stack_id, created_at);
CREATE INDEX schedules_due ON schedules (try_at) WHERE next_at > 0 AND paused = 0;
CREATE INDEX schedules_armed ON schedules (armed_at);

-- What happened when a schedule was due. The unique key ensures that a schedule fires once for each
-- time.
CREATE TABLE schedule_events (
    id            TEXT PRIMARY KEY,
    schedule_id   TEXT NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    due_at        BIGINT NOT NULL,
    happened_at   BIGINT NOT NULL,
    result        TEXT NOT NULL,
    message       TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    version       BIGINT NOT NULL,
    UNIQUE (schedule_id, due_at)
);
CREATE INDEX schedule_events_old ON schedule_events (happened_at);

-- +goose Down
DROP TABLE schedule_events;
DROP TABLE schedules;

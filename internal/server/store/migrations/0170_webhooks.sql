-- +goose Up

-- A webhook of an organization has an empty stack_id. The webhooks of a deleted stack remain until
-- their deliveries have ended.
CREATE TABLE webhooks (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL REFERENCES organizations (id),
    stack_id     TEXT NOT NULL,
    name         TEXT NOT NULL,
    display_name TEXT NOT NULL,
    url          TEXT NOT NULL,
    format       TEXT NOT NULL,
    active       BIGINT NOT NULL,
    filters      TEXT NOT NULL,
    event_groups TEXT NOT NULL,
    secret       BYTEA NOT NULL,
    actor        TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    modified_at  BIGINT NOT NULL,
    UNIQUE (org_id, stack_id, name)
);

-- The sender of a webhook's deliveries. It is a table of its own, so that recording an event reads
-- no row that sending changes.
CREATE TABLE webhook_senders (
    hook_id    TEXT PRIMARY KEY REFERENCES webhooks (id) ON DELETE CASCADE,
    lease      TEXT NOT NULL,
    not_before BIGINT NOT NULL,
    failures   BIGINT NOT NULL
);

CREATE TABLE webhook_events (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    payload    TEXT NOT NULL,
    chain      TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX webhook_events_by_age ON webhook_events (created_at);

CREATE TABLE webhook_deliveries (
    id               TEXT PRIMARY KEY,
    hook_id          TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id         TEXT NOT NULL REFERENCES webhook_events (id),
    format           TEXT NOT NULL,
    status           TEXT NOT NULL,
    attempts         BIGINT NOT NULL,
    due_at           BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    sent_at          BIGINT NOT NULL,
    duration         BIGINT NOT NULL,
    request_url      TEXT NOT NULL,
    request_headers  TEXT NOT NULL,
    response_code    BIGINT NOT NULL,
    response_headers TEXT NOT NULL,
    response_body    TEXT NOT NULL,
    deployment_id    TEXT NOT NULL
);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (hook_id, due_at) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_by_hook ON webhook_deliveries (hook_id, created_at);
CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (created_at);
CREATE INDEX webhook_deliveries_by_deployment ON webhook_deliveries (deployment_id) WHERE deployment_id <> '';

-- +goose Down
DROP TABLE webhook_deliveries;
DROP TABLE webhook_events;
DROP TABLE webhook_senders;
DROP TABLE webhooks;

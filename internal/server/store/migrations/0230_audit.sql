-- +goose Up

-- A change, or a sign-in. An empty org_id means the whole server. The row outlives the actor and
-- the subject, so it names both and references neither.
CREATE TABLE audit_entries (
    id           TEXT PRIMARY KEY,
    org_id       TEXT NOT NULL,
    at           BIGINT NOT NULL,
    actor_kind   TEXT NOT NULL,
    actor_id     TEXT NOT NULL,
    actor        TEXT NOT NULL,
    token_id     TEXT NOT NULL,
    token_name   TEXT NOT NULL,
    action       TEXT NOT NULL,
    subject_kind TEXT NOT NULL,
    subject_id   TEXT NOT NULL,
    subject      TEXT NOT NULL,
    address      TEXT NOT NULL,
    way          TEXT NOT NULL,
    detail       TEXT NOT NULL
);
CREATE INDEX audit_entries_by_org ON audit_entries (org_id, at, id);

-- +goose Down
DROP TABLE audit_entries;

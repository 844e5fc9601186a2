-- +goose Up

-- Older programs can use the schema after this.

-- A link that lets its holder join an organization once. Only the link contains the text whose SHA-256 is hash. The
-- user, or the holder of the token, who made it must still administer the organization when the link is used.
CREATE TABLE invitations (
    id         TEXT PRIMARY KEY,
    org_id     TEXT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
    hash       BYTEA NOT NULL UNIQUE,
    role       TEXT NOT NULL,
    invitee    TEXT NOT NULL, -- for whom it is, for display
    created_by TEXT NOT NULL, -- a user; '' for a token of the organization, or the operator
    token_id   TEXT NOT NULL, -- a token of the organization, or ''
    inviter    TEXT NOT NULL, -- who made it, for display
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX invitations_by_org ON invitations (org_id, created_at);
CREATE INDEX invitations_by_age ON invitations (expires_at);
CREATE INDEX invitations_by_user ON invitations (created_by);

-- +goose Down
DROP TABLE invitations;

-- +goose Up

-- External issuers of identity tokens that an organization trusts.
CREATE TABLE oidc_issuers (
    id             TEXT PRIMARY KEY,
    org_id         TEXT NOT NULL REFERENCES organizations (id),
    name           TEXT NOT NULL,
    url            TEXT NOT NULL,
    issuer         TEXT NOT NULL,
    thumbprints    TEXT NOT NULL,
    max_expiration BIGINT NOT NULL,
    jwks           TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    modified_at    BIGINT NOT NULL,
    last_used_at   BIGINT NOT NULL,
    UNIQUE (org_id, issuer)
);

-- The tokens that the server grants in exchange for an issuer's tokens.
CREATE TABLE oidc_policies (
    id          TEXT PRIMARY KEY,
    issuer_id   TEXT NOT NULL UNIQUE REFERENCES oidc_issuers (id) ON DELETE CASCADE,
    version     BIGINT NOT NULL,
    document    TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    modified_at BIGINT NOT NULL
);

-- The issuer of the identity token that was exchanged for this token.
ALTER TABLE tokens ADD COLUMN issuer_id TEXT NOT NULL DEFAULT '';
CREATE INDEX tokens_by_issuer ON tokens (issuer_id) WHERE issuer_id <> '';
CREATE INDEX tokens_by_expiry ON tokens (expires_at) WHERE expires_at > 0;

-- +goose Down
DROP INDEX tokens_by_expiry;
DROP INDEX tokens_by_issuer;
ALTER TABLE tokens DROP COLUMN issuer_id;
DROP TABLE oidc_policies;
DROP TABLE oidc_issuers;

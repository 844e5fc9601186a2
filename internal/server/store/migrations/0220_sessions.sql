-- +goose Up

-- A browser that is signed in to the console. The browser keeps the text whose SHA-256 is hash.
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    hash       BYTEA NOT NULL UNIQUE,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    way        TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    address    TEXT NOT NULL,
    agent      TEXT NOT NULL,
    token_id   TEXT NOT NULL -- the access token with which the user signed in; '' for other ways
);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_age ON sessions (seen_at);

-- A link that signs a user in once.
CREATE TABLE sign_in_links (
    id         TEXT PRIMARY KEY,
    hash       BYTEA NOT NULL UNIQUE,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sign_in_links_by_age ON sign_in_links (expires_at);

-- +goose Down
DROP TABLE sign_in_links;
DROP TABLE sessions;

-- +goose Up

-- A user's account at an identity provider. Only issuer and subject identify it.
CREATE TABLE identities (
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name       TEXT NOT NULL, -- how the provider names the user, for display
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_by_user ON identities (user_id);

-- The public half of a key with which a user signs in. credential is the id that the user's device
-- gave to the key.
CREATE TABLE passkeys (
    id         TEXT PRIMARY KEY,
    credential BYTEA NOT NULL UNIQUE,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    public_key BYTEA NOT NULL,
    flags      BIGINT NOT NULL,
    sign_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL
);
CREATE INDEX passkeys_by_user ON passkeys (user_id);

-- The challenges and states that a sign-in has used up, until they expire.
CREATE TABLE used_challenges (
    hash       BYTEA PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX used_challenges_by_age ON used_challenges (expires_at);

CREATE INDEX users_by_lower_login ON users (LOWER(login));

-- +goose Down
DROP INDEX users_by_lower_login;
DROP TABLE used_challenges;
DROP TABLE passkeys;
DROP TABLE identities;

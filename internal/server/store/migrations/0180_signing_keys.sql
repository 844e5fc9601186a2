-- +goose Up

-- Keys that sign the identity tokens of jobs.
CREATE TABLE signing_keys (
    id          TEXT PRIMARY KEY,
    public_key  TEXT NOT NULL,
    private_key BYTEA NOT NULL,
    created_at  BIGINT NOT NULL,
    use_from    BIGINT NOT NULL
);

-- +goose Down
DROP TABLE signing_keys;

-- +goose Up

-- What the servers keep for ACME, encrypted: the account, challenges, certificates and private keys.
CREATE TABLE acme_values (
    name       TEXT PRIMARY KEY,
    sealed     BYTEA NOT NULL,
    changed_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE acme_values;

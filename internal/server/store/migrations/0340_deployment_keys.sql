-- +goose Up

-- The keys with which clients can repeat requests for new deployments. key_hash includes the caller.
CREATE TABLE deployment_keys (
    stack_id      TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    key_hash      TEXT NOT NULL,
    body_hash     TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    PRIMARY KEY (stack_id, key_hash)
);

-- +goose Down
DROP TABLE deployment_keys;

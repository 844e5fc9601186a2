-- +goose Up

-- The stored form of each state (see docs/adr/0012). A state without a row is stored whole, in the
-- blob whose key is the state's key.
CREATE TABLE states (
    state_key      TEXT PRIMARY KEY,
    stack_id       TEXT NOT NULL REFERENCES stacks (id) ON DELETE CASCADE,
    form           TEXT NOT NULL,
    parent         TEXT NOT NULL,
    blob_key       TEXT NOT NULL,
    sha256         BYTEA NOT NULL,
    size           BIGINT NOT NULL,
    depth          BIGINT NOT NULL,
    delta_size     BIGINT NOT NULL,
    full_size      BIGINT NOT NULL,
    base_resources BIGINT NOT NULL,
    pulumi_version TEXT NOT NULL,
    created_at     BIGINT NOT NULL
);
CREATE INDEX states_by_stack ON states (stack_id);
CREATE INDEX states_by_blob ON states (blob_key) WHERE blob_key <> '';
CREATE INDEX states_by_parent ON states (parent) WHERE parent <> '';
CREATE INDEX states_by_form ON states (created_at) WHERE form = 'journal';

CREATE TABLE journal_batches (
    state_key  TEXT NOT NULL REFERENCES states (state_key) ON DELETE CASCADE,
    number     BIGINT NOT NULL,
    body       BYTEA NOT NULL,
    size       BIGINT NOT NULL,
    entries    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (state_key, number)
);

ALTER TABLE updates ADD COLUMN journal_version BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE updates DROP COLUMN journal_version;
DROP TABLE journal_batches;
DROP TABLE states;

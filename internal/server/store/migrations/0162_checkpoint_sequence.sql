-- +goose Up

-- The sequence number of the last verbatim checkpoint that an update stored; 0 for none.
ALTER TABLE updates ADD COLUMN checkpoint_sequence BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE updates DROP COLUMN checkpoint_sequence;

-- +goose Up

-- The programs that may use this schema: those that contain all these migrations. release is the first
-- release that contained the migration; see docs/adr/0058-oldest-programs.md.
CREATE TABLE oldest_programs (
    migration BIGINT PRIMARY KEY,
    release TEXT NOT NULL
);

-- +goose Down

DROP TABLE oldest_programs;

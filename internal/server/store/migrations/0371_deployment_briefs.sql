-- +goose Up

-- What lists and searches need of a deployment's configuration, which can be a megabyte long. The texts
-- are cut off. A deployment without any of it has no row. Migration 372 adds the rows of older
-- deployments.
CREATE TABLE deployment_briefs (
    deployment_id TEXT PRIMARY KEY REFERENCES deployments (id) ON DELETE CASCADE,
    branch        TEXT NOT NULL,
    commit_id     TEXT NOT NULL,
    remediates    BIGINT NOT NULL
);

-- +goose Down
DROP TABLE deployment_briefs;

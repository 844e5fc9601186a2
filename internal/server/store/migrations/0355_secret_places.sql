-- +goose Up

-- Secrets of deployment settings are bound to their places. Earlier servers cannot decrypt them, so they
-- must not start on the database.
SELECT 1;

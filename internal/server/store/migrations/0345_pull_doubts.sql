-- +goose Up

-- Why a pull request counts as one from a fork, although no other repository has its head.
ALTER TABLE vcs_pulls ADD COLUMN doubt TEXT NOT NULL DEFAULT '';

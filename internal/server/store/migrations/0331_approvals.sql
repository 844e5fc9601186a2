-- +goose Up

-- Several members can approve a commit, each for the stacks that the member may deploy. The column
-- contains a list in JSON.
UPDATE vcs_pulls SET approved_by = CASE WHEN approved_by = '' THEN '[]' ELSE '["' || approved_by || '"]' END;

-- +goose Down
UPDATE vcs_pulls SET approved = '', approved_by = '';

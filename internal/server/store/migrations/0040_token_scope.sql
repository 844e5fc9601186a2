-- +goose Up

-- The permissions of a job's token: pairs of a stack and an ability, separated by spaces. The
-- tokens of running jobs get the permissions that their deployments need.
ALTER TABLE tokens ADD COLUMN scope TEXT NOT NULL DEFAULT '';

UPDATE tokens SET scope = stack_id || ':decrypt ' || stack_id || ':encrypt ' || stack_id || ':preview ' || stack_id || ':state-read'
    WHERE kind = 'job';
UPDATE tokens SET scope = scope || ' ' || stack_id || ':decrypt-config ' || stack_id || ':write'
    WHERE kind = 'job' AND deployment_id NOT IN (
        SELECT id FROM deployments WHERE operation = 'preview'
        OR operation = 'detect-drift' AND configuration NOT LIKE '%"remediateIfDriftDetected":true%');
UPDATE tokens SET scope = scope || ' ' || stack_id || ':delete-stack' WHERE kind = 'job' AND admin = 1;
UPDATE tokens SET scope = scope || ' *:outputs' WHERE kind = 'job' AND user_id <> '';
UPDATE tokens SET admin = 0 WHERE kind = 'job';

-- +goose Down
UPDATE tokens SET admin = 1 WHERE kind = 'job' AND scope LIKE '%:delete-stack%';
ALTER TABLE tokens DROP COLUMN scope;

-- +goose Up

-- The organization of the stack of an issue, also while the stack is deleted.
ALTER TABLE policy_issues ADD COLUMN org_id TEXT NOT NULL DEFAULT '';
UPDATE policy_issues SET org_id = COALESCE((SELECT d.org_id FROM deleted_stacks d WHERE d.stack_id = policy_issues.stack_id),
    (SELECT s.org_id FROM stacks s WHERE s.id = policy_issues.stack_id), '');
CREATE INDEX policy_issues_by_org ON policy_issues (org_id, observed_at, id);
CREATE INDEX policy_issues_unfixed ON policy_issues (org_id, observed_at, id) WHERE fixed_at = 0;
CREATE INDEX policy_issues_closed ON policy_issues (org_id, observed_at, id) WHERE status IN ('fixed', 'ignored', 'by_design');
CREATE INDEX policy_issues_of_packs ON policy_issues (org_id, pack, level) WHERE fixed_at = 0;
CREATE INDEX policy_issues_open_of_stack ON policy_issues (stack_id, status, ignored_until, pack, level) WHERE fixed_at = 0;

-- Older programs can use the schema after this.
-- They store issues without the organization; the next run that reports such an issue adds it.

-- +goose Down
DROP INDEX policy_issues_open_of_stack;
DROP INDEX policy_issues_of_packs;
DROP INDEX policy_issues_closed;
DROP INDEX policy_issues_unfixed;
DROP INDEX policy_issues_by_org;
ALTER TABLE policy_issues DROP COLUMN org_id;

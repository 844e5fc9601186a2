-- +goose Up

-- A stack has at most one claimed or running job. Of several, which only a defect can have caused, the
-- newest remains. The others become lost: their runners may still run, and can still report their results.
UPDATE jobs SET status = 'failed', reason = 'lost', ended_at = CASE WHEN last_seen_at > 0 THEN last_seen_at ELSE claimed_at END,
    message = 'Two deployments of the stack were active at the same time. Check whether this one still runs before the next deployment of this stack.'
WHERE status IN ('accepted', 'running') AND EXISTS (SELECT 1 FROM jobs n
    WHERE n.stack_id = jobs.stack_id AND n.status IN ('accepted', 'running') AND n.version > jobs.version);
DROP INDEX jobs_active_by_stack;
CREATE UNIQUE INDEX jobs_active_by_stack ON jobs (stack_id) WHERE status IN ('accepted', 'running');

-- A stack has at most one running update that is not a preview. Of several, the newest remains, which
-- holds the stack.
UPDATE updates SET status = 'failed', reason = 'another update of the stack was running at the same time', finished_at = lease_expires_at
WHERE status = 'running' AND preview = 0 AND EXISTS (SELECT 1 FROM updates n
    WHERE n.stack_id = updates.stack_id AND n.status = 'running' AND n.preview = 0
    AND (n.version > updates.version OR n.version = updates.version AND n.id > updates.id));
CREATE UNIQUE INDEX updates_running_by_stack ON updates (stack_id) WHERE status = 'running' AND preview = 0;

-- +goose Down

DROP INDEX updates_running_by_stack;
DROP INDEX jobs_active_by_stack;
CREATE INDEX jobs_active_by_stack ON jobs (stack_id) WHERE status IN ('accepted', 'running');

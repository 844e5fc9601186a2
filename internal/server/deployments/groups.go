package deployments

import (
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// joinGroup makes the concurrency group in a stack's settings that of its jobs. The claims of an
// organization are serial, so that no two jobs of a group can start at once.
func joinGroup(tx *store.Tx, st store.Stack, group string) error {
	queue, err := tx.StackQueue(st.ID)
	if err != nil || queue.ConcurrencyGroup == group {
		return err
	}
	queue.ConcurrencyGroup = group
	if err := tx.SaveStackQueue(queue); err != nil {
		return err
	}
	tx.Notify(pools.QueueTopic, pools.OrgPayload(st.OrgID)) // jobs that waited for the former group can start
	return tx.SetConcurrencyGroup(st.ID, group)
}

// ownGroup sets the concurrency group in the settings of a deployment to that of its stack. A deployment
// outside the group could run together with those inside.
func ownGroup(set, stored *workflow.Settings, r workflow.Request) error {
	own, err := r.Own()
	if err != nil {
		return fault.Invalid("%s", err)
	}
	set.ConcurrencyGroup = ""
	if stored != nil {
		set.ConcurrencyGroup = stored.ConcurrencyGroup
	}
	if own.ConcurrencyGroup != "" && own.ConcurrencyGroup != set.ConcurrencyGroup {
		return fault.Invalid("concurrencyGroup is a setting of the stack, which a deployment cannot change: remove it from the request, or change the settings")
	}
	return nil
}

// oneOfEachGroup returns jobs without those whose group occurs earlier in the list.
func oneOfEachGroup(list []store.Job) []store.Job {
	taken := map[string]bool{}
	var out []store.Job
	for _, job := range list {
		if job.ConcurrencyGroup != "" && taken[job.ConcurrencyGroup] {
			continue
		}
		taken[job.ConcurrencyGroup] = true
		out = append(out, job)
	}
	return out
}

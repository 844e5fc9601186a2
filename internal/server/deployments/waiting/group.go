package waiting

import (
	"fmt"
	"slices"

	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// The sentences about a concurrency group do not name its other stacks, because not all readers of the log can
// see them.

// others returns the deployments of other stacks that hold a group.
func (e explanation) others(group string) []store.QueueEntry {
	if group == "" {
		return nil
	}
	return e.notOwn(e.Groups[group].Holders)
}

func (e explanation) notOwn(list []store.QueueEntry) []store.QueueEntry {
	return slices.DeleteFunc(slices.Clone(list), func(h store.QueueEntry) bool { return h.StackID == e.dj.StackID })
}

// lost reports whether a deployment that holds back others was lost.
func lost(holder store.QueueEntry) bool { return holder.Status.Final() }

// behindGroup explains the wait of a job for other stacks of its concurrency group.
func (e explanation) behindGroup(job store.Job) (Why, bool) {
	name := job.ConcurrencyGroup
	holders := e.others(name)
	if len(holders) == 0 {
		return Why{}, false
	}
	group := e.Groups[name]
	w := e.groupWhy(fmt.Sprintf("Waiting for %s: %s%s", deploymentsOfOthers(len(holders)), rule(name), lostText(holders)))
	visible := e.notOwn(group.Visible)
	if hidden := len(holders) - len(visible); group.Visible != nil && hidden > 0 {
		w.Text += fmt.Sprintf(" Stacks that you cannot see: %d.", hidden)
	}
	if n := e.earlier(job); n > 0 {
		w.Text += fmt.Sprintf(" Requested earlier by other stacks of the group: %s.", words.Count(int64(n), "deployment"))
	}
	w.Blockers = e.blockers(visible)
	switch at := slices.IndexFunc(visible, lost); {
	case at >= 0:
		w.Action = Action{"Open the lost deployment", Open, e.blockers(visible[at:])[0].Path}
	case len(visible) > 0:
		w.Action = Action{"Show the running deployments", Open, e.path("-", "deployments")}
	}
	return w, true
}

// behindTurn explains the wait of a job that an agent could claim, if the agent claims an earlier one of the
// group first.
func (e explanation) behindTurn(job store.Job) (Why, bool) {
	claimable := e.Claimable[job.PoolID]
	at := slices.IndexFunc(claimable, func(q store.QueuedJob) bool { return q.ID == job.ID })
	for _, q := range claimable[:max(0, at)] {
		if q.ConcurrencyGroup == job.ConcurrencyGroup && q.ConcurrencyGroup != "" && q.StackID != e.dj.StackID {
			return e.groupWhy("Waiting for a deployment of another stack, which was requested earlier: " + rule(job.ConcurrencyGroup)), true
		}
	}
	return Why{}, false
}

// alsoBehindGroup completes the reason of a deployment that waits for another one of its stack. Other stacks
// hold its group, too, if the stack has joined that group since the other deployment started.
func (e explanation) alsoBehindGroup(w Why) Why {
	name := e.dj.Job.ConcurrencyGroup
	holders := e.others(name)
	if len(holders) == 0 {
		return w
	}
	w.Text += fmt.Sprintf(" It also waits for %s: %s%s", deploymentsOfOthers(len(holders)), rule(name), lostText(holders))
	w.Blockers = append(w.Blockers, e.blockers(e.notOwn(e.Groups[name].Visible))...)
	return w
}

func (e explanation) groupWhy(text string) Why {
	return Why{
		Reason: Group, Text: text,
		Hint: "To let the stack leave the group: " + e.curl(`-d '{"concurrencyGroup":null}'`, "/api/stacks/"+e.stack+"/deployments/settings"),
	}
}

// earlier returns the number of queued jobs of other stacks of the group that were requested before a job.
func (e explanation) earlier(job store.Job) (n int) {
	for _, q := range e.Groups[job.ConcurrencyGroup].Queued {
		if q.ID == job.ID {
			break
		}
		if q.StackID != e.dj.StackID {
			n++
		}
	}
	return n
}

func rule(group string) string {
	return fmt.Sprintf("of the stacks in the concurrency group %q, only one runs a deployment at a time.", group)
}

func deploymentsOfOthers(n int) string {
	if n == 1 {
		return "a deployment of another stack"
	}
	return fmt.Sprintf("%d deployments of other stacks", n)
}

func lostText(holders []store.QueueEntry) string {
	switch {
	case !slices.ContainsFunc(holders, lost):
		return ""
	case len(holders) == 1:
		return " It was lost, and its update may still be running."
	}
	return " At least one of them was lost, and its update may still be running."
}

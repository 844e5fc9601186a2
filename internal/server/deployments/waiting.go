package deployments

import (
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Reasons of a [joblog.Wait]. Continuation tokens carry the numbers, which must not change.
const (
	waitPool int64 = iota + 1
	waitOrgPaused
	waitStackPaused
	waitLost
	waitEarlier
	waitAgent
	waitCap
	waitBusy
)

// claimTime is how long a free agent may take to claim a job before the job counts as waiting.
const claimTime = 3 * time.Second

// whyQueued returns why a queued deployment does not start, and the command that resolves it.
func (s *Service) whyQueued(tx *store.Tx, d store.Deployment, job store.Job) (joblog.Wait, error) {
	for _, look := range []func(*store.Tx, store.Deployment, store.Job) (joblog.Wait, error){s.pausedOrBlocked, s.behindAnother, s.shortOfAgents} {
		if w, err := look(tx, d, job); err != nil || w.Reason != 0 {
			return w, err
		}
	}
	return joblog.Wait{}, nil
}

func (s *Service) pausedOrBlocked(tx *store.Tx, d store.Deployment, _ store.Job) (joblog.Wait, error) {
	queue, err := tx.StackQueue(d.StackID)
	if err != nil {
		return joblog.Wait{}, err
	}
	org, err := tx.OrgQueue(d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	if !org.Paused && !queue.Paused && queue.BlockedBy == "" {
		return joblog.Wait{}, nil
	}
	name, err := orgName(tx, d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	switch {
	case org.Paused:
		return joblog.Wait{Reason: waitOrgPaused, Text: "Deployments of the organization are paused.\nTo resume: " +
			s.curl("-X POST", "/api/orgs/"+name+"/deployments/resume")}, nil
	case queue.Paused:
		return joblog.Wait{Reason: waitStackPaused, Text: "Deployments of the stack are paused.\nTo resume: " +
			s.curl("-X POST", "/api/stacks/"+name+"/"+d.Project+"/"+d.Stack+"/deployments/resume")}, nil
	}
	return joblog.Wait{Reason: waitLost, Text: "An earlier deployment of the stack was lost and its update may still be running; this one starts when that update has ended.\n" +
		"To end it: pulumi cancel --stack " + name + "/" + d.Project + "/" + d.Stack}, nil
}

func (s *Service) behindAnother(tx *store.Tx, d store.Deployment, job store.Job) (joblog.Wait, error) {
	ahead, err := tx.ActiveJobsOfStack(d.StackID)
	if err != nil {
		return joblog.Wait{}, err
	}
	if len(ahead) == 0 {
		queued, err := tx.QueuedJobsOfStack(d.StackID)
		if err != nil {
			return joblog.Wait{}, err
		}
		if len(queued) == 0 || queued[0].Version >= job.Version {
			return joblog.Wait{}, nil
		}
		ahead = queued[:1]
	}
	first := ahead[0]
	name, err := orgName(tx, d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	text := fmt.Sprintf("Waiting for deployment #%d of the stack, which is %s.", first.Version, progressWord(first.Status))
	if first.Status == workflow.StatusNotStarted {
		if cause, err := s.shortOfAgents(tx, d, first); err != nil {
			return joblog.Wait{}, err
		} else if cause.Text != "" {
			text += fmt.Sprintf("\nDeployment #%d waits: %s", first.Version, cause.Text)
		}
	}
	return joblog.Wait{Reason: waitEarlier, Text: text + fmt.Sprintf("\nTo cancel deployment #%d: pulumi deployment cancel %s --stack %s/%s/%s",
		first.Version, first.DeploymentID, name, d.Project, d.Stack)}, nil
}

func progressWord(status workflow.Status) string {
	if status == workflow.StatusNotStarted {
		return "queued"
	}
	return "running"
}

// shortOfAgents reports that a job has no pool, or its pool no free agent.
func (s *Service) shortOfAgents(tx *store.Tx, d store.Deployment, job store.Job) (joblog.Wait, error) {
	pool, err := tx.Pool(d.OrgID, job.PoolID)
	if errors.Is(err, store.ErrNotFound) {
		return s.withoutPool(tx, d)
	}
	if err != nil {
		return joblog.Wait{}, err
	}
	agents, err := tx.Agents(pool.ID)
	if err != nil {
		return joblog.Wait{}, err
	}
	now, online := tx.Now(), false
	for _, a := range agents {
		online = online || pools.Online(a, now)
	}
	if !online {
		return joblog.Wait{Reason: waitAgent, Text: fmt.Sprintf("No agent of the pool %q is connected.\nTo start one, on its host: customer-managed-workflow-agent run", pool.Name)}, nil
	}
	if now.Sub(job.QueuedAt) < claimTime {
		return joblog.Wait{}, nil
	}
	active, err := tx.CountActiveJobs(d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	if active >= s.opts.Cap {
		return joblog.Wait{Reason: waitCap, Text: fmt.Sprintf("The organization runs %d deployments, as many as it may; this one starts when one of them has ended.", active)}, nil
	}
	return joblog.Wait{Reason: waitBusy, Text: fmt.Sprintf("All agents of the pool %q are busy; the deployment starts when one is free.\nTo run more at once: start another agent, or raise max_concurrent_jobs.", pool.Name)}, nil
}

func (s *Service) withoutPool(tx *store.Tx, d store.Deployment) (joblog.Wait, error) {
	name, err := orgName(tx, d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	list, err := tx.Pools(d.OrgID)
	if err != nil {
		return joblog.Wait{}, err
	}
	if len(list) == 0 {
		return joblog.Wait{Reason: waitPool, Text: "No agent pool exists in the organization.\nTo create one, which becomes its default: " +
			s.curl(`-d '{"name":"default"}'`, "/api/orgs/"+name+"/agent-pools")}, nil
	}
	return joblog.Wait{Reason: waitPool, Text: "No agent pool is chosen for the deployment and the organization has no default.\n" +
		"To choose one for the stack: pulumi deployment settings edit --runner-pool " + list[0].ID +
		" --stack " + name + "/" + d.Project + "/" + d.Stack +
		"\nTo choose the default: " + s.curl(`-X PATCH -d '{"setDefaultAgentPoolID":"`+list[0].ID+`"}'`, "/api/orgs/"+name)}, nil
}

func (s *Service) curl(flags, path string) string {
	return fmt.Sprintf(`curl -H "Authorization: token $PULUMI_ACCESS_TOKEN" %s %s%s`, flags, s.opts.ExternalURL, path)
}

func orgName(tx *store.Tx, id string) (string, error) {
	org, err := tx.Organization(id)
	return org.Name, err
}

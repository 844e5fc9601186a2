package home

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// need is something that needs the visitor.
type need struct {
	Mark          string
	Project, Name string // of a stack
	Title         string // of anything else
	Text          string
	Path          string
	Verb          string    // of the button that opens the path
	At            time.Time // since when
}

func (n need) object() string { return cmp.Or(n.Title, n.Project+"/"+n.Name) }

// find finds what needs the visitor: failed stacks by their causes, drift, stale locks, pools without an agent, waiting
// invitations, and the pause of the organization.
func (p *pages) find(v *page.Visit, o *overview) error {
	if err := p.explain(v, o.Attention); err != nil {
		return err
	}
	o.Needs = failures(o.Org, o.Attention)
	for _, c := range o.Attention {
		if c.State == estate.Drift {
			o.Needs = append(o.Needs, need{
				Mark: view.MarkDrift, Project: c.Project, Name: c.Name, Text: list.DriftText(c.Drifted()), Path: links.Path(o.Org, c.Project, c.Name, "drift"), Verb: "Inspect", At: c.DriftAt,
			})
		}
	}
	if o.States[estate.Running] > 0 {
		stale, err := p.Stacks.StaleLocks(v.Context(), v.Who, v.Org.ID)
		if err != nil {
			return err
		}
		for _, l := range stale {
			o.Needs = append(o.Needs, staleLock(l, o.Now))
		}
	}
	for _, pool := range o.Pools {
		if n, ok := withoutAgent(o.Org, pool, o.Now); ok {
			o.Needs = append(o.Needs, n)
		}
	}
	if o.Queues.Org.Paused {
		o.Needs = append(o.Needs, need{
			Mark: view.MarkPaused, Title: "All deployments", Text: paused(o.Queues.Org.PausedBy), Path: links.Path(o.Org, "-", "deployments"), Verb: "Open", At: o.Queues.Org.PausedAt,
		})
	}
	if !o.Admin {
		return nil
	}
	waiting, err := p.Invitations.List(v.Context(), v.Org.ID)
	if err != nil {
		return err
	}
	if n, ok := invited(o.Org, waiting, o.Now); ok {
		o.Needs = append(o.Needs, n)
	}
	return nil
}

// explained bounds the failed updates without a deployment whose events are read.
const explained = 5

// explain finds the causes of failed updates that no deployment ran.
func (p *pages) explain(v *page.Visit, changes []estate.Change) error {
	read := 0
	for i, c := range changes {
		if c.LastResult != store.RunFailed || c.LastDeployment > 0 || c.Update.ID == "" || read == explained {
			continue
		}
		read++
		tree, err := p.Stacks.ChangesOf(v.Context(), c.Update)
		if err != nil {
			return err
		}
		changes[i].Cause = cause.OfUpdate(tree)
	}
	return nil
}

// sameWithin is the time within which the same error of two stacks is named once.
const sameWithin = 24 * time.Hour

// failures returns the failed stacks, the last changed first. Stacks with the same error follow the one that had it first.
func failures(org string, changes []estate.Change) []need {
	type group struct{ members []estate.Change }
	var groups []*group
	byError := map[string]*group{}
	for _, c := range changes {
		if c.State != estate.Failed {
			continue
		}
		key := ""
		if c.Cause != nil {
			key = alike(cmp.Or(c.Cause.Message, c.Cause.Headline))
		}
		g := byError[key]
		if g == nil || key == "" || g.members[0].ChangedAt.Sub(c.ChangedAt) > sameWithin {
			g = &group{}
			groups = append(groups, g)
			byError[key] = g
		}
		g.members = append(g.members, c)
	}
	var out []need
	for _, g := range groups {
		slices.Reverse(g.members)
		for i, c := range g.members {
			n := need{Mark: view.MarkFailed, Project: c.Project, Name: c.Name, Text: list.FailureText(c), Path: list.RunPath(org, c.Stack), Verb: "Open", At: c.ChangedAt}
			if i > 0 {
				first := g.members[0]
				n.Text = fmt.Sprintf("The same error as %s/%s", first.Project, first.Name)
				if later := c.ChangedAt.Sub(first.ChangedAt); later >= time.Minute {
					n.Text += ", " + words.Age(later) + " later"
				}
			}
			out = append(out, n)
		}
	}
	return out
}

var (
	quoted  = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`")
	numbers = regexp.MustCompile(`(?i)\b(0x)?[0-9a-f]*[0-9][0-9a-f]*\b`)
)

// alike returns what an error has in common with the same error elsewhere: its text without quoted texts and numbers.
func alike(text string) string {
	return numbers.ReplaceAllString(quoted.ReplaceAllString(text, ""), "")
}

func staleLock(l stacks.StaleLock, now time.Time) need {
	text := fmt.Sprintf("Locked by %s; its client has been silent for %s", l.By, words.Duration(now.Sub(l.Renewed)))
	if l.Deployment > 0 {
		text = fmt.Sprintf("Locked by deployment #%d; its client has been silent for %s", l.Deployment, words.Duration(now.Sub(l.Renewed)))
	}
	return need{Mark: view.MarkWarn, Project: l.Stack.Project, Name: l.Stack.Name, Text: text, Path: page.StackPath(l.Stack), Verb: "Open", At: l.Renewed}
}

// withoutAgent returns the need of a pool that has work or had agents, and of which no agent is online.
func withoutAgent(org string, pool pools.Summary, now time.Time) (need, bool) {
	if pool.Online > 0 || pool.Queued == 0 && pool.Agents == 0 {
		return need{}, false
	}
	n := need{Mark: view.MarkWarn, Title: "Pool " + pool.Name, Text: "No agent is online", Path: links.Path(org, "-", "pools", pool.AgentPool.ID), Verb: "Open", At: pool.AgentPool.LastSeenAt}
	if n.At.IsZero() {
		n.At = pool.AgentPool.CreatedAt
	}
	if pool.Queued == 1 {
		n.Text += fmt.Sprintf("; a deployment waits for %s", words.Age(now.Sub(pool.Oldest)))
	} else if pool.Queued > 1 {
		n.Text += fmt.Sprintf("; %s deployments wait, the oldest for %s", words.Number(pool.Queued), words.Age(now.Sub(pool.Oldest)))
	}
	return n, true
}

func paused(by string) string {
	if by == "" {
		return "Paused in the whole organization"
	}
	return "Paused in the whole organization by " + by
}

// invited returns the need of invitations that wait for their users.
func invited(org string, all []invitations.Listed, now time.Time) (need, bool) {
	waiting := slices.DeleteFunc(all, func(i invitations.Listed) bool { return i.Void || invitations.Expired(i.Invitation, now) })
	if len(waiting) == 0 {
		return need{}, false
	}
	first := slices.MinFunc(waiting, func(a, b invitations.Listed) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	left := words.Age(first.ExpiresAt.Sub(now))
	n := need{Mark: view.MarkQueued, Title: "Invitations", Path: links.Path(org, "-", "settings", "members"), Verb: "Open", At: first.CreatedAt}
	switch {
	case len(waiting) > 1:
		n.Text = words.Count(len(waiting), "invitation") + " not accepted yet; the first expires in " + left
	case first.Invitee != "":
		n.Text = "Not accepted yet by " + first.Invitee + "; it expires in " + left
	default:
		n.Text = "1 invitation not accepted yet; it expires in " + left
	}
	return n, true
}

// needed returns the number of things that need the visitor, with those that the page leaves out.
func (o overview) needed() int64 {
	n := o.States[estate.Failed] + o.States[estate.Drift]
	for _, need := range o.Needs {
		if need.Mark != view.MarkFailed && need.Mark != view.MarkDrift {
			n++
		}
	}
	return n
}

package forges

import (
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// Watching is what the git host of a stack reported, and what the server decided.
type Watching struct {
	Stack store.Stack
	// Watches is not set if the stack watches no repository.
	Watches bool
	Watched integrations.Watched
	Pulls   []dispatch.Pull
	Entries []dispatch.Entry
	// Reviews are the review stacks of pull requests, by their numbers.
	Reviews map[int64]store.Stack
	// Admin shows links to the integration, and Operate the buttons.
	Admin, Operate bool
}

// Watching returns what the git host of a visitor's stack reported, with the topics of its changes.
func (d Deps) Watching(v *page.Visit) (w Watching, live []view.Topic, err error) {
	ctx := v.Context()
	w = Watching{Stack: v.Stack, Admin: v.Who.CanAdminOrg(v.Stack.OrgID), Operate: v.Who.Can(v.Stack, identity.Operate)}
	if w.Watched, w.Watches, err = d.Integrations.WatchedBy(ctx, v.Stack); err != nil {
		return w, nil, err
	}
	if w.Watches {
		id := w.Watched.Integration.ID
		live = []view.Topic{{Channel: dispatch.Topic, About: id}, {Channel: dispatch.Processed, About: id}, {Channel: integrations.Topic, About: id}}
	}
	if w.Pulls, err = d.Events.Pulls(ctx, v.Stack); err != nil {
		return w, live, err
	}
	if w.Reviews, err = d.Events.ReviewStacks(ctx, v.Who, v.Stack, w.Pulls); err != nil {
		return w, live, err
	}
	w.Entries, err = d.Events.OfStack(ctx, v.Stack)
	return w, live, err
}

// Approve approves the commit of a pull request that the visitor has seen.
func (d Deps) Approve(v *page.Visit) error {
	number, err := strconv.ParseInt(v.Form("number"), 10, 64)
	if err != nil || number <= 0 {
		return fault.Invalid("Choose a pull request.")
	}
	_, err = d.Events.Approve(v.Context(), v.Who, v.Stack, number, v.Form("commit"))
	return err
}

func (w Watching) watch() store.VCSWatch { return w.Watched.Watches[0] }

// Triggers returns what deploys the stack, in words.
func (w Watching) Triggers() []string {
	if !w.Watches {
		return nil
	}
	watch := w.watch()
	var out []string
	branch := "the branch " + watch.Branch
	if watch.Branch == "" {
		branch = "no branch, because the settings name none"
	}
	for _, t := range []struct {
		on   bool
		text string
	}{
		{watch.DeployCommits, "Commits on " + branch + " are deployed."},
		{watch.PreviewPulls, "Pull requests against " + branch + " are previewed."},
		{watch.DeployTags, "Tags are deployed."},
		{watch.Template, "Each pull request against " + branch + " gets a review stack."},
		{watch.DeployPull > 0, "Pull request #" + strconv.FormatInt(watch.DeployPull, 10) + " is deployed."},
	} {
		if t.on {
			out = append(out, t.text)
		}
	}
	return out
}

// PlainPaths reports whether paths apply only to pushes that a hook reports.
func (w Watching) PlainPaths() bool {
	return w.Watches && len(w.watch().Paths) > 0 && kindOf(w.Watched.Integration).name == "git"
}

// Bounds of what the page lists.
const (
	pullsShown  = 50
	eventsShown = 20
)

// shownPulls returns the pull requests, those whose newest commit waits for an approval first.
func (w Watching) shownPulls() (list []dispatch.Pull, more int) {
	var others []dispatch.Pull
	for _, p := range w.Pulls {
		if p.Approvable {
			list = append(list, p)
		} else {
			others = append(others, p)
		}
	}
	kept := others[:min(len(others), pullsShown)]
	return append(list, kept...), len(others) - len(kept)
}

// waiting reports whether a commit waits for an approval.
func (w Watching) waiting() bool {
	for _, p := range w.Pulls {
		if p.Approvable {
			return true
		}
	}
	return false
}

// ran returns the newest decision that started a deployment for a pull request, and whether the pull request has a review
// stack.
func (w Watching) ran(number int64) (d *store.VCSDecision, review bool) {
	subject := "pull/" + strconv.FormatInt(number, 10)
	for _, e := range w.Entries {
		if e.Subject != subject {
			continue
		}
		for i := range e.Decisions {
			review = review || e.Decisions[i].Action == string(vcs.ActionReview)
			if d == nil && e.Decisions[i].Version > 0 {
				d = &e.Decisions[i]
			}
		}
	}
	return d, review
}

// line is an event on the page of a stack: its mark, and what was decided and why.
type line struct {
	dispatch.Entry
	Mark, Why string
	Decision  store.VCSDecision
}

func (w Watching) lines() []line {
	var out []line
	for _, e := range w.Entries[:min(len(w.Entries), eventsShown)] {
		l := line{Entry: e, Mark: view.MarkSkipped}
		why := []string{vcs.Reason(e.Reason).Text(), e.Detail}
		if len(e.Decisions) > 0 {
			l.Decision = e.Decisions[0]
			why = []string{vcs.Reason(l.Decision.Reason).Text(), l.Decision.Detail}
		}
		switch {
		case !e.Done:
			l.Mark = view.MarkQueued
			if e.Reason == "" {
				why = []string{"The server processes the event now."}
			}
		case l.Decision.Version > 0 || l.Decision.Action != "":
			l.Mark = view.MarkOK
		case vcs.Reason(l.Decision.Reason) == vcs.ReasonRefused:
			l.Mark = view.MarkFailed
		}
		l.Why = strings.TrimSpace(strings.Join(why, " "))
		out = append(out, l)
	}
	return out
}

package vcs_test

import (
	"slices"
	"testing"

	"workflowagent/internal/server/vcs"
)

const (
	one   = "1111111111111111111111111111111111111111"
	two   = "2222222222222222222222222222222222222222"
	three = "3333333333333333333333333333333333333333"
)

var (
	known   = func(names ...string) vcs.Files { return vcs.Files{Names: names, Known: true} }
	pushed  = vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: one, After: two}
	commits = vcs.Watch{Branch: "main", DeployCommits: true}
	tags    = vcs.Watch{Branch: "main", DeployTags: true}
)

func tagged(name string) vcs.Event {
	return vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/" + name, After: two}
}

func on(ref string) vcs.Event {
	e := pushed
	e.Ref = ref
	return e
}

func withPaths(w vcs.Watch, paths ...string) vcs.Watch {
	w.Paths = paths
	return w
}

func withTags(w vcs.Watch, filters ...string) vcs.Watch {
	w.TagFilters = filters
	return w
}

// TestPushRows contains the rows about pushes and tags that need neither a ledger nor a forge. The
// numbers are those of the table of cases in the design.
func TestPushRows(t *testing.T) {
	deleted := pushed
	deleted.Deleted, deleted.After = true, ""
	skips := pushed
	skips.Message = "Fix a typo\n\n[skip CI]"
	for _, row := range []struct {
		name   string
		event  vcs.Event
		watch  vcs.Watch
		files  vcs.Files
		honor  bool
		reason vcs.Reason
		runs   bool
	}{
		{"row 1: push", pushed, commits, vcs.Files{}, false, vcs.ReasonPushed, true},
		{"row 2: trigger off", pushed, vcs.Watch{Branch: "main"}, vcs.Files{}, false, vcs.ReasonTriggerOff, false},
		{"row 3: other branch", on("refs/heads/feature"), commits, vcs.Files{}, false, vcs.ReasonOtherBranch, false},
		{"row 5: tag named like the branch", tagged("main"), commits, vcs.Files{}, false, vcs.ReasonTriggerOff, false},
		{"row 6: no path matches", pushed, withPaths(commits, "infra/**"), known("docs/x"), false, vcs.ReasonNoPath, false},
		{"row 7: one path matches", pushed, withPaths(commits, "infra/**"), known("infra/a", "docs/x"), false, vcs.ReasonPushed, true},
		{"row 8: excluded", pushed, withPaths(commits, "infra/**", "!infra/docs/**"), known("infra/docs/x"), false, vcs.ReasonExcluded, false},
		{"row 9: exclude wins", pushed, withPaths(commits, "!foo/**", "foo/bar/**"), known("foo/bar/m.ts"), false, vcs.ReasonExcluded, false},
		{"row 10: only excludes", pushed, withPaths(commits, "!docs/**"), known("x"), false, vcs.ReasonPushed, true},
		{"row 11: rename counts with the old name", pushed, withPaths(commits, "infra/**"), known("infra/a", "old/a"), false, vcs.ReasonPushed, true},
		{"row 13: incomplete list", pushed, withPaths(commits, "infra/**"), vcs.Files{Names: []string{"docs/x"}}, false, vcs.ReasonPushed, true},
		{"row 15: empty commit with paths", pushed, withPaths(commits, "infra/**"), known(), false, vcs.ReasonEmpty, false},
		{"row 15: empty commit without paths", pushed, commits, known(), false, vcs.ReasonPushed, true},
		{"row 19: branch deleted", deleted, commits, vcs.Files{}, false, vcs.ReasonDeleted, false},
		{"row 29: skip ci, by default", skips, commits, vcs.Files{}, false, vcs.ReasonPushed, true},
		{"row 29: skip ci, honored", skips, commits, vcs.Files{}, true, vcs.ReasonSkipCI, false},
		{"row 35: no branch", pushed, vcs.Watch{DeployCommits: true}, vcs.Files{}, false, vcs.ReasonOtherBranch, false},
		{"row 37: tag without filter", tagged("v1.2.0"), tags, vcs.Files{}, false, vcs.ReasonTagged, true},
		{"row 39: tag excluded", tagged("v1.2.0-rc1"), withTags(tags, "v*", "!*-rc*"), vcs.Files{}, false, vcs.ReasonTagFilter, false},
		{"row 40: star does not cross a slash", tagged("release/v1"), withTags(tags, "v*"), vcs.Files{}, false, vcs.ReasonTagFilter, false},
		{"row 40: tag with a slash", tagged("release/v1"), withTags(tags, "release/*"), vcs.Files{}, false, vcs.ReasonTagged, true},
		{"row 41: tags off", tagged("v1"), withTags(commits, "v*"), vcs.Files{}, false, vcs.ReasonTriggerOff, false},
		{"row 42: tag deleted", vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", Before: one, Deleted: true}, tags, vcs.Files{}, false, vcs.ReasonDeleted, false},
		{"row 44: paths do not apply to tags", tagged("v1"), withPaths(tags, "infra/**"), known("docs/x"), false, vcs.ReasonTagged, true},
		{"another kind of ref", on("refs/notes/commits"), commits, vcs.Files{}, false, vcs.ReasonTriggerOff, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := vcs.MatchRef(row.event, row.watch, row.files, row.honor)
			want := vcs.ActionNone
			if row.runs {
				want = vcs.ActionUpdate
			}
			if d.Action != want || d.Reason != row.reason {
				t.Fatalf("got action %q, reason %q; want %q, %q", d.Action, d.Reason, want, row.reason)
			}
			if row.runs && (d.Commit != two || d.Ref != row.event.Ref) {
				t.Errorf("deploys %s at %s", d.Ref, d.Commit)
			}
		})
	}
}

func TestFilesNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		event vcs.Event
		watch vcs.Watch
		want  bool
	}{
		"paths":        {pushed, withPaths(commits, "a"), true},
		"no paths":     {pushed, commits, false},
		"tag":          {tagged("v1"), withPaths(tags, "a"), false},
		"other branch": {on("refs/heads/x"), withPaths(commits, "a"), false},
	} {
		if got := vcs.RefNeedsFiles(tt.event, tt.watch); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPullRows contains the rows about pull requests that need no store.
func TestPullRows(t *testing.T) {
	open := vcs.Pull{Number: 7, State: vcs.PullOpen, Head: two, Base: "main", Source: "feature"}
	change := func(fn func(*vcs.Pull)) vcs.Pull {
		p := open
		fn(&p)
		return p
	}
	fork := change(func(p *vcs.Pull) { p.Fork = true })
	draft := change(func(p *vcs.Pull) { p.Draft = true })
	labeled := func(names ...string) vcs.Pull { return change(func(p *vcs.Pull) { p.Labels = names }) }
	bot := change(func(p *vcs.Pull) { p.Author.Bot = true })
	previews := vcs.Watch{Branch: "main", PreviewPulls: true}
	template := vcs.Watch{Branch: "main", Template: true}
	both := vcs.Watch{Branch: "main", PreviewPulls: true, Template: true}
	gated := template
	gated.Labels = []string{"rs"}
	five := vcs.Watch{Branch: "main", DeployPull: 7}
	approve := vcs.Policy{Forks: vcs.ApprovalRequired, Bots: vcs.ApprovalRequired}
	type want struct {
		action vcs.Action
		reason vcs.Reason
	}
	for _, row := range []struct {
		name    string
		pull    vcs.Pull
		watch   vcs.Watch
		policy  vcs.Policy
		context vcs.PullContext
		want    []want
	}{
		{"row 47: opened", open, previews, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionPreview, vcs.ReasonPull}}},
		{"row 48: against another branch", change(func(p *vcs.Pull) { p.Base = "dev" }), previews, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionSkip, vcs.ReasonOtherBranch}}},
		{"row 56: no path matches", open, withPaths(previews, "infra/**"), vcs.Policy{}, vcs.PullContext{Files: known("docs/x")}, []want{{vcs.ActionNone, vcs.ReasonNoPath}}},
		{"row 57: the whole pull request counts", open, withPaths(previews, "infra/**"), vcs.Policy{}, vcs.PullContext{Files: known("docs/x", "infra/a")}, []want{{vcs.ActionPreview, vcs.ReasonPull}}},
		{"row 58: draft where drafts run nothing", draft, previews, vcs.Policy{NoDrafts: true}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonDraft}}},
		{"row 59: draft elsewhere", draft, previews, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionPreview, vcs.ReasonPull}}},
		{"row 60: closed", change(func(p *vcs.Pull) { p.State = vcs.PullClosed }), previews, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionSkip, vcs.ReasonClosed}}},
		{"row 61: merged", change(func(p *vcs.Pull) { p.State = vcs.PullMerged }), previews, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionSkip, vcs.ReasonClosed}}},
		{"row 63: fork by default", fork, both, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonForkOff}}},
		{"row 63: fork with approval", fork, both, approve, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonFork}}},
		{"row 64: approved commit", fork, previews, approve, vcs.PullContext{Approved: two}, []want{{vcs.ActionPreview, vcs.ReasonPull}}},
		{"row 64: a new commit waits", fork, previews, approve, vcs.PullContext{Approved: one}, []want{{vcs.ActionNone, vcs.ReasonFork}}},
		{"an approval does not enable forks", fork, previews, vcs.Policy{}, vcs.PullContext{Approved: two}, []want{{vcs.ActionNone, vcs.ReasonForkOff}}},
		{"a value for bots does not enable forks", fork, previews, vcs.Policy{Forks: vcs.ApprovalNotAsked}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonForkOff}}},
		{"bots by default", bot, previews, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionPreview, vcs.ReasonPull}}},
		{"bots with approval", bot, previews, approve, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonBot}}},
		{"row 70: template", open, template, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionReview, vcs.ReasonPull}}},
		{"row 71: without label", open, gated, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonLabel}}},
		{"row 71: with label", labeled("x", "rs"), gated, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionReview, vcs.ReasonPull}}},
		{"row 71: labels are case-sensitive", labeled("RS"), gated, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonLabel}}},
		{"preview and template", open, both, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionPreview, vcs.ReasonPull}, {vcs.ActionReview, vcs.ReasonPull}}},
		{"row 85: deployed pull request", open, five, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionUpdate, vcs.ReasonPull}}},
		{"row 85: close", change(func(p *vcs.Pull) { p.State = vcs.PullClosed }), five, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonClosed}}},
		{"row 85: another pull request", change(func(p *vcs.Pull) { p.Number = 6 }), five, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonOtherBranch}}},
		{"deployed pull request from a fork", fork, five, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonForkOff}}},
		{"triggers off", open, commits, vcs.Policy{}, vcs.PullContext{}, []want{{vcs.ActionNone, vcs.ReasonTriggerOff}}},
		{"skip ci, honored", open, previews, vcs.Policy{HonorSkipCI: true}, vcs.PullContext{Message: "x [ci skip]"}, []want{{vcs.ActionNone, vcs.ReasonSkipCI}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []want
			for _, d := range vcs.MatchPull(row.pull, row.watch, row.policy, row.context) {
				got = append(got, want{d.Action, d.Reason})
				if d.Commit != row.pull.Head || d.Pull == nil || d.Pull.Number != row.pull.Number {
					t.Errorf("decision about commit %s of %+v", d.Commit, d.Pull)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
			needs := vcs.PullNeedsFiles(row.pull, row.watch, row.policy, row.context)
			if needs && len(row.watch.Paths) == 0 {
				t.Error("reads files that cannot matter")
			}
		})
	}
}

func TestTemplates(t *testing.T) {
	review := func(project, stack string) vcs.Decision {
		return vcs.Decision{Watch: vcs.Watch{Project: project, Stack: stack}, Action: vcs.ActionReview, Reason: vcs.ReasonPull}
	}
	got := vcs.ChooseTemplates([]vcs.Decision{review("web", "b"), review("web", "a"), review("db", "z"), {Reason: vcs.ReasonNoPath}})
	var reasons []vcs.Reason
	for _, d := range got {
		reasons = append(reasons, d.Reason)
	}
	// Row 74: the first by name in a project, and one for each project.
	if want := []vcs.Reason{vcs.ReasonOtherTemplate, vcs.ReasonPull, vcs.ReasonPull, vcs.ReasonNoPath}; !slices.Equal(reasons, want) {
		t.Errorf("got %v, want %v", reasons, want)
	}
	if got[0].Action != vcs.ActionNone || got[0].Detail != "a" {
		t.Errorf("the second template: %+v", got[0])
	}
}

package dispatch_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// plain adds an integration with a git server without an API, and a stack that watches its repository.
// send sends a report of its hook, and processes it.
func (s *site) plain(triggers string, change integrations.Change) (st store.Stack, send func(e vcs.Event)) {
	s.t.Helper()
	change.BaseURL = new("https://git.example")
	settings := change.Settings
	change.Settings = func(set *integrations.Settings) error {
		set.Repositories = []integrations.Listed{{Name: "app"}}
		if settings == nil {
			return nil
		}
		return settings(set)
	}
	i, secret, err := s.forges.Create(s.t.Context(), s.user, s.org, vcs.ProviderCustom, change)
	s.must(err)
	s.id = i.ID
	st = s.stack("dev", commits)
	_, err = s.queue.ReplaceSettings(s.t.Context(), s.user, st,
		[]byte(`{"sourceContext":{"git":{"branch":"main"}},"vcs":{"provider":"custom","repository":"app",`+triggers+`}}`), "test")
	s.must(err)
	return st, func(e vcs.Event) {
		s.t.Helper()
		if e.Repo.ID == "" {
			e.Repo = vcs.RepoID{ID: "https://git.example/app", Name: "app"}
		}
		s.sent++
		body, err := json.Marshal(vcs.Parsed{ID: fmt.Sprintf("delivery-%d", s.sent), Events: []vcs.Event{e}})
		s.must(err)
		_, err = s.dispatch.Receive(s.t.Context(), vcs.FlavorGit, i.ID, vcs.Delivery{Header: map[string]string{"secret": secret}, Body: body})
		s.must(err)
		s.process()
	}
}

// TestPushWhoseReportIsLost loses the report of a push that changes what a stack deploys. The next
// push changes something else, and names its own files only.
func TestPushWhoseReportIsLost(t *testing.T) {
	const filtered = commits + `,"paths":["infra/**"]`
	second := push(two, three)
	second.Files, second.Complete = []string{"README"}, true
	t.Run("plain git", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), connected())
		s.forge.complete = false
		st, send := s.plain(filtered, connected())
		s.poll()
		s.forge.refs["refs/heads/main"] = three
		send(second)
		s.wantDeployed(st, "update 3")
		s.poll()
		s.wantDeployed(st, "update 3")
	})
	t.Run("plain git that cannot be asked", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), connected())
		st, send := s.plain(filtered, integrations.Change{})
		first := push("", one)
		first.Files, first.Complete = []string{"README"}, true
		send(first)
		s.wantDeployed(st)
		send(second)
		s.wantDeployed(st, "update 3")
	})
	t.Run("a sender that never names the commit before", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), connected())
		st, send := s.plain(filtered, integrations.Change{})
		for _, commit := range []string{one, two, three} {
			e := push("", commit)
			e.Unanchored, e.Files, e.Complete = true, []string{"README"}, true
			send(e)
		}
		s.wantDeployed(st) // row 90
	})
	t.Run("a forge", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), connected())
		st := s.stack("dev", filtered)
		s.poll()
		s.forge.refs["refs/heads/main"], s.forge.files = three, []string{"README", "infra/a"}
		s.deliver("", push(two, three))
		s.process()
		s.wantDeployed(st, "update 3")
		if got := s.forge.compared; got != (vcs.Change{Before: one, After: three}) {
			t.Errorf("compared %+v", got)
		}
	})
}

// TestManyTagsWithReports checks that tags whose reports wait are deployed, although a poll finds many
// new tags at the same time.
func TestManyTagsWithReports(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", `"deployTags":true`)
	s.poll()
	for n := range 5 {
		ref := fmt.Sprintf("refs/tags/v%d", n)
		s.forge.refs[ref] = two
		s.deliver("", vcs.Event{Kind: vcs.KindTag, Ref: ref, After: two})
	}
	s.poll()
	if got := s.deployed(st); len(got) != 5 {
		t.Errorf("deployments %q, the last reason is %s", got, s.reason(st))
	}
}

// TestReportsOfPulls loses, delays and doubles the reports about the commits of a pull request. The
// stack must end with a preview of the newest one, and preview no commit twice.
func TestReportsOfPulls(t *testing.T) {
	for name, order := range map[string][]int{"in order": {2, 3}, "all lost": nil, "one lost": {2}, "late": {3, 2}, "doubled": {2, 2, 3, 3}, "doubled and late": {3, 2, 3, 2}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, storetest.SQLite(t), connected())
			st := s.stack("dev", previews)
			s.poll()
			s.forge.pulls[7] = open(7, two)
			for _, n := range order {
				if n == 3 {
					s.forge.set(func() { s.forge.pulls[7] = open(7, three) })
				}
				s.deliver("", pullEvent(7))
				s.process()
			}
			s.forge.set(func() { s.forge.pulls[7] = open(7, three) })
			s.poll()
			got := s.deployed(st)
			if len(got) == 0 || len(got) > 2 || got[len(got)-1] != "preview 3" {
				t.Errorf("deployments %q", got)
			}
		})
	}
}

package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

// TestOwnHead checks that a pull request is the repository's own only if a branch of the repository
// has its head. Others can make pull requests that name the repository, and must not run.
func TestOwnHead(t *testing.T) {
	other := func(name, commit string) func(*forge, *vcs.Pull) {
		return func(f *forge, _ *vcs.Pull) { f.refs[name] = commit }
	}
	for name, row := range map[string]struct {
		change func(f *forge, p *vcs.Pull)
		want   vcs.Reason
		waits  vcs.Reason // the reason of the attempts before; the servers of the forge can differ for a moment
	}{
		"the branch has the commit":      {func(*forge, *vcs.Pull) {}, vcs.ReasonPull, ""},
		"the branch has another commit":  {other("refs/heads/feature-7", three), vcs.ReasonUnconfirmed, vcs.ReasonUnconfirmed},
		"there is no such branch":        {other("refs/heads/feature-7", ""), vcs.ReasonUnconfirmed, vcs.ReasonUnconfirmed},
		"only a tag has the name":        {func(f *forge, _ *vcs.Pull) { f.refs["refs/heads/feature-7"], f.refs["refs/tags/feature-7"] = "", two }, vcs.ReasonUnconfirmed, vcs.ReasonUnconfirmed},
		"the source is a full ref":       {func(_ *forge, p *vcs.Pull) { p.Source = "refs/pull/7/head" }, vcs.ReasonUnconfirmed, vcs.ReasonUnconfirmed},
		"the source has no name":         {func(f *forge, p *vcs.Pull) { p.Source, f.refs["refs/heads/"] = "", "" }, vcs.ReasonUnconfirmed, vcs.ReasonUnconfirmed},
		"branches may not be read":       {func(f *forge, _ *vcs.Pull) { f.headErr = vcs.ErrRefused }, vcs.ReasonUnconfirmed, vcs.ReasonNoAccess},
		"the git server is away":         {func(f *forge, _ *vcs.Pull) { f.headErr = errors.New("no route to host") }, vcs.ReasonUnconfirmed, vcs.ReasonWaiting},
		"the forge says it is no branch": {func(_ *forge, p *vcs.Pull) { p.Fork, p.Doubt = true, vcs.ReasonNoBranch }, vcs.ReasonNoBranch, ""},
		"a fork has a branch of the name": {func(f *forge, p *vcs.Pull) {
			p.Fork, f.refs["refs/heads/feature-7"] = true, two
		}, vcs.ReasonFork, ""},
	} {
		for _, triggers := range []string{previews, `"deployPullRequest":7`} {
			t.Run(name+"/"+triggers, func(t *testing.T) {
				s := newSite(t, storetest.SQLite(t), withForks(vcs.ApprovalRequired))
				st := s.stack("dev", triggers)
				s.forge.refs["refs/heads/refs/pull/7/head"] = ""
				p := open(7, two)
				row.change(s.forge, &p)
				s.put(p)
				if row.waits != "" {
					s.wantReason(st, row.waits)
					for range 3 {
						s.retry()
					}
				}
				s.wantReason(st, row.want)
				if row.want == vcs.ReasonPull {
					if got := s.deployed(st); len(got) != 1 {
						t.Errorf("deployments %q", got)
					}
					return
				}
				s.wantDeployed(st)
				if row.waits != "" {
					all, err := s.dispatch.OfIntegration(t.Context(), s.org, s.id)
					s.must(err)
					if !strings.Contains(all[0].Detail, "branch") {
						t.Errorf("the event says only %q", all[0].Detail)
					}
				}
				who, err := s.on(st)
				s.must(err)
				_, err = s.dispatch.Approve(t.Context(), who, st, 7, two)
				s.must(err)
				s.process()
				if got := s.deployed(st); len(got) != 1 {
					t.Errorf("deployments after the approval: %q", got)
				}
				s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
					d, err := tx.DeploymentByVersion(st.ID, 1)
					c, err2 := tx.Checkout(d.ID)
					if !c.Fork {
						t.Error("the deployment claims to be of the repository itself")
					}
					return errors.Join(err, err2)
				}))
			})
		}
	}
}

// TestDoubtEnds checks that a pull request that was in doubt runs once the forge confirms it.
func TestDoubtEnds(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	s.poll()
	s.forge.set(func() { s.forge.headErr = errors.New("no route to host") })
	s.put(open(7, two))
	for range 3 {
		s.retry()
	}
	s.wantReason(st, vcs.ReasonUnconfirmed)
	who, err := s.on(st)
	s.must(err)
	if _, err := s.dispatch.Approve(t.Context(), who, st, 7, two); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("approving a pull request that the integration does not allow: %v", err)
	}
	s.forge.set(func() { s.forge.headErr = nil })
	s.poll()
	s.wantDeployed(st) // it is not asked at each poll
	s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		r, err := tx.RepoByRemoteID(s.id, "17")
		s.must(err)
		row, err := tx.PullByNumber(r.ID, 7)
		row.ReadAt = row.ReadAt.Add(-2 * time.Hour)
		return errors.Join(err, tx.SavePull(row))
	}))
	s.poll()
	s.wantDeployed(st, "preview 2")
}

// TestRateLimitIsNoDoubt checks that a limit of the forge delays a pull request, and decides nothing.
func TestRateLimitIsNoDoubt(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	s.poll()
	s.forge.set(func() { s.forge.headErr = &vcs.RateLimited{Until: time.Now().Add(-time.Minute)} })
	s.put(open(7, two))
	for range 6 {
		s.retry()
	}
	s.wantReason(st, vcs.ReasonLimited)
	s.forge.set(func() { s.forge.headErr = nil })
	s.retry()
	s.wantDeployed(st, "preview 2")
}

// TestBotsOfTheRepository checks that a bot's pull request from a branch of the repository is the
// repository's own, also where the forge does not tell what the bot's account may do.
func TestBotsOfTheRepository(t *testing.T) {
	for _, provider := range []string{vcs.ProviderGitHub, vcs.ProviderAzure} {
		t.Run(provider, func(t *testing.T) {
			s := newSite(t, storetest.SQLite(t), connected())
			p := open(7, two)
			p.Author, p.Ref = vcs.Account{ID: "99", Name: "renovate", Bot: true}, ""
			var st store.Stack
			if provider == vcs.ProviderAzure {
				var send func(id string, e vcs.Event)
				st, send = s.azure(previews)
				s.poll()
				s.forge.pulls[7] = p
				send("bot", pullEvent(7))
			} else {
				st = s.stack("dev", previews)
				s.put(p)
			}
			if got := fmt.Sprint(s.deployed(st)); got != "[preview 2]" {
				t.Errorf("deployments %s, reason %s", got, s.reason(st))
			}
		})
	}
}

package dispatch_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

const commits = `"deployCommits":true`

// TestPushRows contains the rows of the design's table of cases that need the ledger, the forge and
// the store.
func TestPushRows(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *site){
		"rows 1, 4, 36: push": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			s.deliver("", push(one, two))
			s.process()
			s.wantDeployed(st, "update 2")
			s.wantReason(st, vcs.ReasonPushed)
			s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
				d, err := tx.DeploymentByVersion(st.ID, 1)
				c, err2 := tx.Checkout(d.ID)
				if d.Initiator != "git-push" || d.Requester != "alice (forge)" || d.RequestedBy != "" || c.Branch != "main" || c.Ref != "refs/heads/main" || c.Pull != 0 {
					t.Errorf("deployment %+v of %+v", d, c)
				}
				return errors.Join(err, err2)
			}))
		},
		"row 12: files that the delivery lacks": func(t *testing.T, s *site) {
			st := s.stack("dev", commits+`,"paths":["infra/**"]`)
			s.poll()
			s.forge.refs["refs/heads/main"], s.forge.files = two, []string{"docs/a", "infra/b"}
			e := push(one, two)
			e.Files = []string{"docs/a"}
			s.deliver("", e)
			s.process()
			s.wantDeployed(st, "update 2")
			if s.forge.asked["changed"] != 1 {
				t.Error("did not ask the forge for the files")
			}
		},
		"very many files count as a match": func(t *testing.T, s *site) {
			st := s.stack("dev", commits+`,"paths":["infra/**"]`)
			s.poll()
			s.forge.refs["refs/heads/main"], s.forge.files = two, slices.Repeat([]string{"docs/a"}, 10_001)
			s.deliver("", push(one, two))
			s.process()
			s.wantDeployed(st, "update 2")
		},
		"row 14: the forge is down while files are needed": func(t *testing.T, s *site) {
			st := s.stack("dev", commits+`,"paths":["infra/**"]`)
			s.poll()
			s.forge.set(func() { s.forge.err = errors.New("no route to host") })
			s.deliver("", push(one, two))
			s.process()
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonWaiting)
			s.forge.set(func() { s.forge.err, s.forge.files = nil, []string{"infra/a"} })
			s.retry()
			s.wantDeployed(st, "update 2")
		},
		"row 16: first push creates the branch": func(t *testing.T, s *site) {
			delete(s.forge.refs, "refs/heads/main")
			st := s.stack("dev", commits+`,"paths":["infra/**"]`)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			s.deliver("", push("", two))
			s.process()
			s.wantDeployed(st, "update 2")
		},
		"rows 17, 18: force pushes": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = three
			s.deliver("", push(one, three))
			s.process()
			s.forge.refs["refs/heads/main"] = one
			s.deliver("", push(three, one))
			s.process()
			s.wantDeployed(st, "update 3", "update 1")
		},
		"rows 19, 20: deleted and created again": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			delete(s.forge.refs, "refs/heads/main")
			gone := push(one, "")
			gone.Deleted = true
			s.deliver("", gone)
			s.process()
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonDeleted)
			s.forge.refs["refs/heads/main"] = one
			s.deliver("", push("", one))
			s.process()
			s.wantDeployed(st, "update 1")
		},
		"row 21: same delivery again": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			s.deliver("x", push(one, two))
			s.process()
			if out := s.deliver("x", push(one, two)); out.Accepted != 0 || out.Ignored != vcs.ReasonDuplicate {
				t.Errorf("got %+v", out)
			}
			s.process()
			s.wantDeployed(st, "update 2")
		},
		"row 22: an old push with a new delivery id": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			for _, e := range []vcs.Event{push(one, two), push(two, one)} {
				s.forge.refs["refs/heads/main"] = e.After
				s.deliver("", e)
				s.process()
			}
			s.deliver("", push(one, two)) // now a replay of the first
			s.process()
			s.wantDeployed(st, "update 2", "update 1")
			s.wantReason(st, vcs.ReasonStale)
		},
		"row 23: webhook and poll": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			s.poll()
			s.deliver("", push(one, two))
			s.process()
			s.poll()
			s.wantDeployed(st, "update 2")
		},
		"row 23: poll while the webhook waits": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			s.deliver("", push(one, two))
			s.poll()
			s.wantDeployed(st, "update 2")
		},
		"row 24: pushes in the wrong order": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = three
			s.deliver("", push(two, three))
			s.process()
			s.deliver("", push(one, two))
			s.process()
			s.wantDeployed(st, "update 3")
		},
		"row 25: pushes in order": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = three
			s.deliver("", push(one, two))
			s.deliver("", push(two, three))
			s.process()
			s.wantDeployed(st, "update 2", "update 3")
		},
		"row 26: test delivery": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.deliver("", push(one, one))
			s.process()
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonTest)
		},
		"row 27: pushes while the server is down": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = four
			s.restart()
			s.poll()
			s.wantDeployed(st, "update 4")
		},
		"row 28: trigger switched on": func(t *testing.T, s *site) {
			st := s.stack("dev", `"deployCommits":false`)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			s.settings(st, commits)
			s.poll()
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonRecorded)
			s.settings(st, `"deployCommits":false`)
			s.poll()
			s.forge.refs["refs/heads/main"] = three
			s.settings(st, commits)
			s.poll()
			s.wantDeployed(st)
		},
		"row 28: trigger switched on again between two polls": func(_ *testing.T, s *site) {
			st := s.stack("dev", commits+`,"deployTags":true`)
			s.forge.refs["refs/tags/v1"] = one
			s.poll()
			s.settings(st, `"deployCommits":false`)
			s.forge.refs["refs/heads/main"], s.forge.refs["refs/tags/v1"] = two, two
			s.settings(st, commits+`,"deployTags":true`)
			s.poll()
			s.wantDeployed(st)
		},
		"rows 2, 3: refs that nothing deploys": func(t *testing.T, s *site) {
			off, dev := s.stack("off", `"deployCommits":false`), s.stack("dev", commits)
			s.settings(dev, `"deployTags":true`)
			s.poll()
			s.deliver("", push(one, two))
			s.process()
			s.wantReason(off, vcs.ReasonTriggerOff)
			other := push(one, two)
			other.Ref = "refs/heads/feature"
			s.deliver("", other)
			s.process()
			s.wantDeployed(off)
			s.wantDeployed(dev)
			if s.forge.asked["head"] != 0 {
				t.Error("asked the forge about refs that nothing deploys")
			}
		},
		"webhook": func(t *testing.T, s *site) {
			s.stack("dev", commits)
			s.poll()
			s.poll()
			if s.forge.hooks != 1 || s.forge.hook != (vcs.Hook{URL: "https://server.test/workflow/github/" + s.id, Secret: s.secret}) {
				t.Errorf("registered %d webhooks, the last with the address %s", s.forge.hooks, s.forge.hook.URL)
			}
			_, secret, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Rotate: true})
			s.must(err)
			s.poll()
			if s.forge.hooks != 2 || s.forge.hook.Secret != secret {
				t.Error("the webhook does not use the new secret")
			}
		},
		"row 31: three stacks": func(t *testing.T, s *site) {
			a, b, c := s.stack("a", commits+`,"paths":["a/**"]`), s.stack("b", commits+`,"paths":["b/**"]`), s.stack("c", commits)
			s.poll()
			s.forge.refs["refs/heads/main"], s.forge.files = two, []string{"a/x"}
			s.deliver("", push(one, two))
			s.process()
			s.wantDeployed(a, "update 2")
			s.wantDeployed(b)
			s.wantReason(b, vcs.ReasonNoPath)
			s.wantDeployed(c, "update 2")
		},
		"row 32: renamed repository": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.repos, s.forge.refs["refs/heads/main"] = map[string]string{"o/new": "17"}, two
			e := push(one, two)
			e.Repo = vcs.RepoID{ID: "17", Name: "o/new"}
			s.deliver("", e)
			s.process()
			s.wantDeployed(st, "update 2")
		},
		"row 33: another repository with the old name": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			e := push(one, two)
			e.Repo = vcs.RepoID{ID: "99", Name: "o/r"}
			if out := s.deliver("", e); out.Ignored != vcs.ReasonOtherRepo {
				t.Errorf("got %+v", out)
			}
			s.process()
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonOtherRepo)
		},
		"row 33: another repository with the old name, by polls": func(t *testing.T, s *site) {
			st := s.stack("dev", previews+","+commits)
			s.poll()
			s.forge.repos, s.forge.refs["refs/heads/main"] = map[string]string{"o/r": "99", "o/new": "17"}, two
			s.forge.pulls[7] = open(7, three)
			s.poll()
			s.wantDeployed(st)
			s.forge.repos = map[string]string{"o/new": "17"}
			s.forge.redirect = map[string]string{"o/r": "o/new"}
			s.poll()
			if got := s.deployed(st); len(got) != 2 {
				t.Errorf("deployments after the other repository was deleted: %q", got)
			}
			s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
				r, err := tx.RepoByRemoteID(s.id, "17")
				if r.Name != "o/new" || r.CloneURL != "https://git.example/o/new.git" {
					t.Errorf("the repository is known as %s at %s", r.Name, r.CloneURL)
				}
				return err
			}))
		},
		"row 34: the repository was removed from the installation": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.set(func() { s.forge.err = vcs.ErrRefused })
			s.poll()
			s.wantDeployed(st)
			i, err := s.forges.Get(t.Context(), s.org, s.id)
			s.must(err)
			if i.RefusedAt.IsZero() {
				t.Error("the integration does not know that its credentials are refused")
			}
			s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				i.RefusedAt = tx.Now().Add(-2 * time.Hour)
				return tx.SaveIntegration(i)
			}))
			s.poll()
			if i, err = s.forges.Get(t.Context(), s.org, s.id); err != nil || i.Problem == "" {
				t.Errorf("the integration has no problem, %v", err)
			}
			s.forge.set(func() { s.forge.err = nil })
			s.poll()
			if i, err = s.forges.Get(t.Context(), s.org, s.id); err != nil || i.Problem != "" || !i.RefusedAt.IsZero() {
				t.Errorf("the integration still has the problem %q, %v", i.Problem, err)
			}
		},
		"rows 37, 38: tags": func(t *testing.T, s *site) {
			st := s.stack("dev", `"deployTags":true`)
			s.poll()
			s.forge.refs["refs/tags/v1.2.0"] = two
			s.deliver("", vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1.2.0", After: two})
			s.process()
			s.wantDeployed(st, "update 2")
			s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
				d, err := tx.DeploymentByVersion(st.ID, 1)
				c, err2 := tx.Checkout(d.ID)
				if d.Initiator != "git-tag" || c.Branch != "refs/tags/v1.2.0" {
					t.Errorf("deployment by %s of %+v", d.Initiator, c)
				}
				return errors.Join(err, err2)
			}))
		},
		"rows 42, 43: tag moved and deleted": func(t *testing.T, s *site) {
			st := s.stack("dev", `"deployTags":true`)
			s.forge.refs["refs/tags/v1"] = one
			s.poll()
			s.wantDeployed(st)
			s.forge.refs["refs/tags/v1"] = two
			s.poll()
			delete(s.forge.refs, "refs/tags/v1")
			s.poll()
			s.wantDeployed(st, "update 2")
		},
		"row 45: branch and tag together": func(t *testing.T, s *site) {
			st := s.stack("dev", commits+`,"deployTags":true`)
			s.poll()
			s.forge.refs["refs/heads/main"], s.forge.refs["refs/tags/v1"] = two, two
			s.deliver("", push(one, two), vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", After: two})
			s.process()
			s.wantDeployed(st, "update 2", "update 2")
		},
		"row 46: tags at one poll": func(t *testing.T, s *site) {
			st := s.stack("dev", `"deployTags":true,"tagFilters":["v*"]`)
			s.poll()
			for _, tag := range []string{"v1", "v2", "v3", "x1", "x2"} {
				s.forge.refs["refs/tags/"+tag] = two
			}
			s.poll()
			s.wantDeployed(st, "update 2", "update 2", "update 2")
			for _, tag := range []string{"v4", "v5", "v6", "v7", "v8"} {
				s.forge.refs["refs/tags/"+tag] = three
			}
			s.poll()
			s.wantReason(st, vcs.ReasonManyTags)
			s.poll()
			s.wantDeployed(st, "update 2", "update 2", "update 2")
		},
		"row 88: one delivery with two refs": func(t *testing.T, s *site) {
			st := s.stack("dev", commits)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			other := push(one, three)
			other.Ref = "refs/heads/other"
			if out := s.deliver("", push(one, two), other); out.Accepted != 1 || out.Ignored != vcs.ReasonOtherBranch {
				t.Errorf("got %+v", out)
			}
			s.process()
			s.wantDeployed(st, "update 2")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, newSite(t, storetest.SQLite(t), connected())) })
	}
}

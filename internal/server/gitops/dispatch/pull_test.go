package dispatch_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

const previews = `"previewPullRequests":true`

func open(number int, head string) vcs.Pull {
	return vcs.Pull{Number: number, State: vcs.PullOpen, Head: head, Base: "main", Source: fmt.Sprintf("feature-%d", number), Ref: "refs/pull/7/head", Author: vcs.Account{ID: "5", Name: "alice"}}
}

// put changes a pull request in the forge, and processes an event about it.
func (s *site) put(p vcs.Pull) {
	s.t.Helper()
	s.forge.set(func() { s.forge.pulls[p.Number] = p })
	s.deliver("", pullEvent(p.Number))
	s.process()
}

func withForks(v vcs.Approval) integrations.Change {
	c := connected()
	c.Settings = func(set *integrations.Settings) error {
		set.ForkPulls, set.BotPulls = v, vcs.ApprovalRequired
		return nil
	}
	return c
}

func TestPullRows(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *site){
		"row 47: opened": func(t *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.put(open(7, two))
			s.wantDeployed(st, "preview 2")
			s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
				d, err := tx.DeploymentByVersion(st.ID, 1)
				c, err2 := tx.Checkout(d.ID)
				if d.Initiator != "pull-request" || c.Pull != 7 || c.Ref != "refs/pull/7/head" || c.Branch != "feature-7" || c.Fork {
					t.Errorf("deployment by %s of %+v", d.Initiator, c)
				}
				r, err3 := tx.VCSReportOf(store.VCSReport{RepoID: c.RepoID, Pull: 7, CommitID: two, Context: "pulumi"})
				if r.Wanted == 0 {
					t.Error("no report on the whole commit is wanted")
				}
				return errors.Join(err, err2, err3)
			}))
		},
		"row 48: against another branch": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			p := open(7, two)
			p.Base = "dev"
			s.put(p)
			s.wantDeployed(st)
		},
		"row 49: new commit while the old preview is queued": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.put(open(7, two))
			s.put(open(7, three))
			s.wantDeployed(st, "preview 2 skipped", "preview 3")
		},
		"row 51: two pull requests": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.put(open(7, two))
			s.put(open(8, three))
			s.wantDeployed(st, "preview 2", "preview 3")
		},
		"rows 52, 53: no new commit": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.put(open(7, two))
			p := open(7, two)
			p.Title, p.Labels = "new", []string{"x"}
			s.put(p)
			s.wantDeployed(st, "preview 2")
			s.wantReason(st, vcs.ReasonUnchanged)
		},
		"rows 54, 55: retargeted": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			p := open(7, two)
			p.Base = "dev"
			s.put(p)
			s.put(open(7, two))
			s.put(p)
			s.wantDeployed(st, "preview 2 skipped")
		},
		"row 56: no path matches": func(t *testing.T, s *site) {
			st := s.stack("dev", previews+`,"paths":["infra/**"]`)
			s.forge.files = []string{"docs/x"}
			s.put(open(7, two))
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonNoPath)
			s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
				r, err := tx.RepoByRemoteID(s.id, "17")
				report, err2 := tx.VCSReportOf(store.VCSReport{RepoID: r.ID, Pull: 7, CommitID: two, Context: "pulumi"})
				if report.Wanted == 0 {
					t.Error("the report on the whole commit would never conclude")
				}
				return errors.Join(err, err2)
			}))
		},
		"rows 60, 61: closed and merged": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews+","+commits)
			s.poll()
			s.put(open(7, two))
			p := open(7, two)
			p.State = vcs.PullMerged
			s.put(p)
			s.wantDeployed(st, "preview 2 skipped")
			s.forge.refs["refs/heads/main"] = three
			s.deliver("", push(one, three))
			s.process()
			s.wantDeployed(st, "preview 2 skipped", "update 3")
		},
		"row 67: check requested again": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.put(open(7, two))
			s.forge.writers = []string{"5"}
			s.deliver("", vcs.Event{Kind: vcs.KindRerun, Pull: 7, After: two, Check: "pulumi", Sender: vcs.Account{ID: "6", Name: "mallory"}})
			s.process()
			s.wantDeployed(st, "preview 2")
			s.wantReason(st, vcs.ReasonUnauthorized)
			s.deliver("", vcs.Event{Kind: vcs.KindRerun, Pull: 7, After: two, Check: "proj/dev - preview deployment", Sender: vcs.Account{ID: "5", Name: "alice"}})
			s.process()
			s.wantDeployed(st, "preview 2 skipped", "preview 2")
			s.deliver("", vcs.Event{Kind: vcs.KindRerun, Pull: 7, After: one, Check: "pulumi", Sender: vcs.Account{ID: "5", Name: "alice"}})
			s.process()
			s.wantDeployed(st, "preview 2 skipped", "preview 2")
			s.wantReason(st, vcs.ReasonStale)
		},
		"row 68: merge queue": func(t *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.poll()
			s.deliver("", vcs.Event{Kind: vcs.KindMergeGroup, Ref: "refs/heads/queue/main/7", After: four})
			s.process()
			s.wantDeployed(st)
			s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
				r, err := tx.RepoByRemoteID(s.id, "17")
				report, err2 := tx.VCSReportOf(store.VCSReport{RepoID: r.ID, CommitID: four, Context: "pulumi"})
				if report.Wanted == 0 {
					t.Error("the merge queue would wait for ever")
				}
				return errors.Join(err, err2)
			}))
		},
		"row 85: deployed pull request": func(_ *testing.T, s *site) {
			st := s.stack("dev", `"deployPullRequest":7`)
			s.put(open(7, two))
			s.put(open(8, three))
			p := open(7, two)
			p.State = vcs.PullClosed
			s.put(p)
			s.wantDeployed(st, "update 2")
		},
		"poll instead of webhooks": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.forge.pulls[7] = open(7, two)
			s.poll() // only records what is open already
			s.wantDeployed(st)
			s.forge.pulls[7], s.forge.pulls[8] = open(7, three), open(8, four)
			s.poll()
			s.poll()
			got := strings.Join(s.deployed(st), ", ")
			if got != "preview 3, preview 4" && got != "preview 4, preview 3" {
				s.t.Errorf("deployments: %s", got)
			}
		},
		"the forge hides the pull request": func(t *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.poll()
			s.deliver("", pullEvent(7))
			s.process()
			s.wantReason(st, vcs.ReasonMissing)
			if s.waiting() != 1 {
				t.Error("the event ended, although some forges show new pull requests late")
			}
			for range 10 {
				s.retry()
			}
			s.wantReason(st, vcs.ReasonMissing)
			if s.waiting() != 0 {
				t.Error("the event waits for ever")
			}
			if s.forge.asked["pull"] != 11 {
				t.Errorf("asked %d times, want 11", s.forge.asked["pull"])
			}
			s.retry()
			s.forge.pulls[7] = open(7, two)
			s.poll()
			s.wantDeployed(st, "preview 2") // the event does not keep polls from finding it
		},
		"the forge cannot be reached": func(_ *testing.T, s *site) {
			st := s.stack("dev", previews)
			s.poll()
			s.forge.set(func() { s.forge.err = errors.New("no route to host") })
			s.put(open(7, two))
			s.wantDeployed(st)
			s.wantReason(st, vcs.ReasonWaiting)
			s.forge.set(func() { s.forge.err = nil })
			s.retry()
			s.wantDeployed(st, "preview 2")
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, newSite(t, storetest.SQLite(t), connected())) })
	}
}

// TestForks contains the rows about pull requests that a member must approve.
func TestForks(t *testing.T) {
	fork := open(7, two)
	fork.Fork = true
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, withForks(vcs.ApprovalRequired))
		st := s.stack("dev", previews)
		s.put(fork)
		s.wantDeployed(st)
		s.wantReason(st, vcs.ReasonFork) // row 63
		approve := func(n int64, commit string) error {
			p, err := s.on(st)
			if err != nil {
				return err
			}
			_, err = s.dispatch.Approve(t.Context(), p, st, n, commit)
			return err
		}
		for name, err := range map[string]error{"another commit": approve(7, one), "an abbreviation": approve(7, two[:12]), "no commit": approve(7, ""), "another pull request": approve(8, two)} {
			if fault.KindOf(err) != fault.KindConflict && fault.KindOf(err) != fault.KindNotFound {
				t.Errorf("approving %s: %v", name, err)
			}
		}
		s.must(approve(7, two))
		s.process()
		s.wantDeployed(st, "preview 2") // row 64
		next := fork
		next.Head = three
		s.put(next)
		s.wantReason(st, vcs.ReasonFork)
		s.wantDeployed(st, "preview 2")
	})
	t.Run("row 63: not allowed", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), withForks(vcs.ApprovalNever))
		st := s.stack("dev", previews)
		s.put(fork)
		s.wantReason(st, vcs.ReasonForkOff)
		p, err := s.on(st)
		s.must(err)
		if _, err := s.dispatch.Approve(t.Context(), p, st, 7, two); fault.KindOf(err) != fault.KindForbidden {
			t.Errorf("approving a fork that is not allowed: %v", err)
		}
	})
	t.Run("a fork whose commits the base does not have", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), withForks(vcs.ApprovalRequired))
		st := s.stack("dev", previews)
		p := fork
		p.Ref = ""
		s.put(p)
		s.wantReason(st, vcs.ReasonForkOff)
	})
	t.Run("bots", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), withForks(vcs.ApprovalNever))
		st := s.stack("dev", previews)
		p := open(7, two)
		p.Author.Bot = true
		s.put(p)
		s.wantReason(st, vcs.ReasonBot)
		who, err := s.on(st)
		s.must(err)
		_, err = s.dispatch.Approve(t.Context(), who, st, 7, two)
		s.must(err)
		s.process()
		s.wantDeployed(st, "preview 2")
	})
	t.Run("a member who may deploy only one of the stacks", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), withForks(vcs.ApprovalRequired))
		dev, prod := s.stack("dev", previews), s.stack("prod", previews)
		member := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "mallory", Login: "mallory"}, Roles: map[string]string{s.org.ID: identity.RoleCollaborator}}
		may := func(to store.Permission) {
			s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) (err error) {
				err = tx.SaveCollaborator(store.Collaborator{StackID: dev.ID, UserID: member.User.ID, Permission: to})
				if err == nil {
					member, err = member.On(tx, dev)
				}
				return err
			}))
		}
		s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return errors.Join(tx.InsertUser(member.User), tx.InsertMember(store.Member{OrgID: s.org.ID, UserID: member.User.ID, Role: identity.RoleCollaborator}))
		}))
		may(store.WritePermission)
		s.put(fork)
		_, err := s.dispatch.Approve(t.Context(), member, dev, 7, two)
		s.must(err)
		may(store.ReadPermission)
		s.process()
		s.wantDeployed(dev) // the member lost the permission meanwhile
		may(store.WritePermission)
		s.put(fork)
		s.wantDeployed(dev, "preview 2")
		s.wantDeployed(prod)
		s.wantReason(prod, vcs.ReasonFork)
		who, err := s.on(prod)
		s.must(err)
		_, err = s.dispatch.Approve(t.Context(), who, prod, 7, two)
		s.must(err)
		s.process()
		s.wantDeployed(dev, "preview 2")
		s.wantDeployed(prod, "preview 2")
		s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { // the other approval alone still counts for dev
			r, err := tx.RepoByRemoteID(s.id, "17")
			s.must(err)
			row, err := tx.PullByNumber(r.ID, 7)
			if len(row.ApprovedBy) != 2 || row.ApprovedBy[0] == row.ApprovedBy[1] {
				t.Errorf("approved by %v", row.ApprovedBy)
			}
			row.ApprovedBy = slices.Delete(row.ApprovedBy, 0, 1)
			return errors.Join(err, tx.SavePull(row))
		}))
		s.forge.writers = []string{"5"}
		s.deliver("", vcs.Event{Kind: vcs.KindRerun, Pull: 7, After: two, Check: "pulumi", Sender: vcs.Account{ID: "5", Name: "alice"}})
		s.process()
		s.wantDeployed(dev, "preview 2 skipped", "preview 2")
		s.wantDeployed(prod, "preview 2")
		next := fork
		next.Head = three
		s.put(next)
		_, err = s.dispatch.Approve(t.Context(), who, prod, 7, three)
		s.must(err)
		s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
			r, err := tx.RepoByRemoteID(s.id, "17")
			s.must(err)
			row, err := tx.PullByNumber(r.ID, 7)
			if len(row.ApprovedBy) != 1 {
				t.Errorf("an approval of another commit remains: %v", row.ApprovedBy)
			}
			return err
		}))
	})
	t.Run("a caller without permission", func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t), withForks(vcs.ApprovalRequired))
		st := s.stack("dev", previews)
		s.put(fork)
		job := s.user
		job.Kind, job.Org = "job", s.org
		job.User.SiteAdmin, job.Roles = false, nil
		if _, err := s.dispatch.Approve(t.Context(), job, st, 7, two); fault.KindOf(err) == "" {
			t.Errorf("a job approved a pull request: %v", err)
		}
	})
}

// TestRefusedPreview checks that a commit whose preview was refused runs once it is possible.
func TestRefusedPreview(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	s.poll()
	elsewhere := `{"sourceContext":{"git":{"branch":"refs/heads/main","repoUrl":"https://other.example/o/r.git"}},"vcs":{"provider":"github","repository":"o/r",` + previews + `}}`
	_, err := s.queue.ReplaceSettings(t.Context(), s.user, st, []byte(elsewhere), "test")
	s.must(err)
	s.put(open(7, two))
	s.wantReason(st, vcs.ReasonRefused)
	s.settings(st, previews)
	s.deliver("", pullEvent(7))
	s.process()
	s.wantDeployed(st, "preview 2")
	s.deliver("", pullEvent(7))
	s.process()
	s.wantDeployed(st, "preview 2")
}

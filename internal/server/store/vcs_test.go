package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// vcsFixture adds the stacks a and b, an integration and a repository.
func vcsFixture(t *testing.T, db *store.DB) (store.VCSIntegration, store.VCSRepo) {
	t.Helper()
	stackFixture(t, db, "a", "b")
	i := store.VCSIntegration{
		ID: "int", OrgID: "id-acme", Provider: "custom", Flavor: "git", Name: "n", BaseURL: "https://git.example", APIURL: "https://api.example",
		Owner: "o", Project: "p", AppID: "42", Installation: "7", Options: "{}", Credential: []byte{1}, Secret: []byte{2}, OldSecret: []byte{3},
		OldUntil: instant(9), RefusedAt: instant(1), Problem: "x", CreatedBy: "u", CreatedAt: instant(0), ModifiedAt: instant(2),
	}
	r := store.VCSRepo{
		ID: "repo", IntegrationID: "int", RemoteID: "99", Name: "o/r", CloneURL: "https://git.example/o/r.git", TagsKnown: true,
		HookAt: instant(3), HookedAt: instant(7), PollAt: instant(4), PolledAt: instant(5), Failures: 6, Problem: "y", PullCursor: "c", CreatedAt: instant(0), OrgID: "id-acme",
	}
	write(t, db, func(tx *store.Tx) error { return errors.Join(tx.InsertIntegration(i), tx.InsertRepo(r)) })
	return i, r
}

func watchOf(stack, repo string) store.VCSWatch {
	return store.VCSWatch{
		StackID: "id-" + stack, IntegrationID: "int", RepoID: repo, Name: "o/r", Branch: "main", DeployCommits: true, PreviewPulls: true,
		Template: true, DeployTags: true, DeployPull: 5, Paths: []string{"infra/**"}, TagFilters: []string{"v*"}, Labels: []string{"rs"},
		FindAt: instant(1), Failures: 2, Problem: "z",
	}
}

func TestVCSIntegrations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		want, repo := vcsFixture(t, db)
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			again := want
			again.ID = "other"
			return tx.InsertIntegration(again)
		})
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second integration of one name: %v", err)
		}
		read(t, db, func(tx *store.Tx) error {
			one, err := tx.Integration("int")
			all, err2 := tx.Integrations("id-acme")
			ofApp, err3 := tx.IntegrationsOfApp("42")
			none, err4 := tx.IntegrationsOfApp("")
			r, err5 := tx.Repo("repo")
			remote, err6 := tx.RepoByRemoteID("int", "99")
			repos, err7 := tx.Repos("int")
			if diff := cmp.Diff([]any{want, []store.VCSIntegration{want}, []store.VCSIntegration{want}, 0, repo, repo, []store.VCSRepo{repo}},
				[]any{one, all, ofApp, len(none), r, remote, repos}); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			return errors.Join(err, err2, err3, err4, err5, err6, err7)
		})
		write(t, db, func(tx *store.Tx) error {
			want.Problem, repo.Problem = "", ""
			return errors.Join(tx.SaveIntegration(want), tx.SaveRepo(repo), tx.SaveWatch(watchOf("a", "repo")))
		})
		write(t, db, func(tx *store.Tx) error { return tx.DeleteIntegration("int") })
		read(t, db, func(tx *store.Tx) error {
			for what, err := range map[string]error{"repository": second(tx.Repo("repo")), "watch": second(tx.Watch("id-a"))} {
				if !errors.Is(err, store.ErrNotFound) {
					t.Errorf("the %s of a deleted integration: %v", what, err)
				}
			}
			return nil
		})
	})
}

func read(t *testing.T, db *store.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.Read(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestVCSWatches(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		_, repo := vcsFixture(t, db)
		bound, unbound := watchOf("a", "repo"), watchOf("b", "")
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.SaveWatch(bound), tx.SaveWatch(unbound)) })
		for _, w := range []*store.VCSWatch{&bound, &unbound} {
			w.OrgID, w.Project = "id-acme", "p"
		}
		bound.Stack, unbound.Stack = "a", "b"
		read(t, db, func(tx *store.Tx) error {
			one, err := tx.Watch("id-a")
			of, err2 := tx.WatchesOfRepo("repo")
			unfound, err3 := tx.WatchesOfRepo("")
			all, err4 := tx.WatchesOfIntegration("int")
			named, err5 := tx.WatchesOfName("int", "o/r")
			find, err6 := tx.WatchesToFind(instant(1), 9)
			early, err7 := tx.WatchesToFind(instant(0), 9)
			both := []store.VCSWatch{bound, unbound}
			if diff := cmp.Diff([]any{bound, []store.VCSWatch{bound}, 0, both, both, []store.VCSWatch{unbound}, 0},
				[]any{one, of, len(unfound), all, named, find, len(early)}); diff != "" {
				t.Errorf("watches (-want +got):\n%s", diff)
			}
			due, err8 := tx.ReposToPoll(repo.PollAt, 9)
			later, err9 := tx.ReposToPoll(repo.PollAt.Add(-time.Second), 9)
			if len(due) != 1 || len(later) != 0 {
				t.Errorf("%d repositories are due, %d before their time", len(due), len(later))
			}
			return errors.Join(err, err2, err3, err4, err5, err6, err7, err8, err9)
		})
		write(t, db, func(tx *store.Tx) error { return tx.PollReposNow("", instant(2)) })
		read(t, db, func(tx *store.Tx) error {
			r, err := tx.Repo("repo")
			if !r.PollAt.Equal(instant(2)) {
				t.Errorf("the next poll is at %v", r.PollAt)
			}
			return err
		})
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.SaveRef(store.VCSRef{RepoID: "repo", Ref: "refs/heads/main", CommitID: "1", Recorded: true, SeenAt: instant(0)}),
				tx.SaveRef(store.VCSRef{RepoID: "repo", Ref: "refs/heads/main", CommitID: "2", SeenAt: instant(1)}),
				tx.SaveRef(store.VCSRef{RepoID: "repo", Ref: "refs/tags/v1", CommitID: "3"}),
				tx.DeleteRef("repo", "refs/tags/v1"), tx.DeleteRef("repo", "refs/tags/v1"),
			)
		})
		read(t, db, func(tx *store.Tx) error {
			want := store.VCSRef{RepoID: "repo", Ref: "refs/heads/main", CommitID: "2", SeenAt: instant(1)}
			one, err := tx.Ref("repo", "refs/heads/main")
			all, err2 := tx.Refs("repo")
			if diff := cmp.Diff([]any{want, []store.VCSRef{want}}, []any{one, all}); diff != "" {
				t.Errorf("refs (-want +got):\n%s", diff)
			}
			return errors.Join(err, err2)
		})
		unused := func() (n int) {
			read(t, db, func(tx *store.Tx) error {
				list, err := tx.UnusedRepos(instant(100), 9)
				n = len(list)
				return err
			})
			write(t, db, func(tx *store.Tx) error { return tx.DeleteUnusedRepo("repo", instant(100)) })
			return n
		}
		if n := unused(); n != 0 {
			t.Errorf("removed %d watched repositories", n)
		}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.DeleteWatch("id-a"), tx.DeleteWatch("id-a"))
		})
		if n := unused(); n != 1 {
			t.Errorf("removed %d unused repositories, want 1", n)
		}
		if n := unused(); n != 0 {
			t.Errorf("%d unused repositories remain", n)
		}
		write(t, db, func(tx *store.Tx) error { return tx.DeleteStack("id-b", "ada") })
		read(t, db, func(tx *store.Tx) error {
			if _, err := tx.Watch("id-b"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the watch of a deleted stack: %v", err)
			}
			return nil
		})
	})
}

func TestVCSEvents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		vcsFixture(t, db)
		event := func(id, delivery string, at int64) store.VCSEvent {
			return store.VCSEvent{
				ID: id, OrgID: "id-acme", IntegrationID: "int", RepoID: "repo", RepoName: "o/r", DeliveryID: delivery, Source: "webhook", Kind: "push",
				Subject: "refs/heads/main", BeforeID: "1", AfterID: "2", Document: "{}", ReceivedAt: instant(at), TryAt: instant(at),
			}
		}
		first, later := event("e1", "d1", 1), event("e2", "d2", 2)
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.InsertVCSEvent(later), tx.InsertVCSEvent(first)) })
		if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertVCSEvent(event("e3", "d1", 3)) }); !errors.Is(err, store.ErrConflict) {
			t.Errorf("the same delivery again: %v", err)
		}
		read(t, db, func(tx *store.Tx) error {
			due, err := tx.DueVCSEvents(instant(5), 9)
			now, err2 := tx.DueVCSEvents(instant(1), 9)
			n, err3 := tx.PendingVCSEvents("repo", "refs/heads/main", "")
			has, err4 := tx.HasVCSEvent("int", "d1", "push", "refs/heads/main")
			hasNot, err5 := tx.HasVCSEvent("int", "d1", "tag", "refs/heads/main")
			repeats, err6 := tx.RepeatsVCSEvent(later)
			if !slices.Equal(due, []string{"e1", "e2"}) || !slices.Equal(now, []string{"e1"}) || n != 2 || !has || hasNot || repeats {
				t.Error("got", due, now, n, has, hasNot, repeats)
			}
			return errors.Join(err, err2, err3, err4, err5, err6)
		})
		decision := store.VCSDecision{
			ID: "x", EventID: "e1", StackID: "id-a", Action: "update", Reason: "pushed", Detail: "d", CommitID: "2", DeploymentID: "dep", Version: 4,
			DecidedAt: instant(4),
		}
		first.Done, first.DoneAt = true, instant(4)
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.SaveVCSEvent(first), tx.InsertVCSDecision(decision)) })
		decision.Project, decision.Stack = "p", "a"
		read(t, db, func(tx *store.Tx) error {
			one, err := tx.VCSEvent("e1")
			all, err2 := tx.VCSEventsOfIntegration("int", 1)
			of, err3 := tx.VCSEventsOfStack("id-a", 9)
			decisions, err4 := tx.VCSDecisions("e1")
			repeats, err5 := tx.RepeatsVCSEvent(later)
			self, err6 := tx.RepeatsVCSEvent(first)
			if diff := cmp.Diff([]any{first, []store.VCSEvent{later}, []store.VCSEvent{first}, []store.VCSDecision{decision}, true, false},
				[]any{one, all, of, decisions, repeats, self}); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			return errors.Join(err, err2, err3, err4, err5, err6)
		})
		write(t, db, func(tx *store.Tx) error {
			n, err := tx.DeleteOldVCSEvents(instant(100), 9)
			if n != 1 {
				t.Errorf("removed %d events, want the one that is done", n)
			}
			return err
		})
	})
}

// TestDueVCSEvents checks that many events of one repository hide neither those of the organization's
// other repositories nor those of other organizations.
func TestDueVCSEvents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		vcsFixture(t, db)
		for at, of := range [][2]string{{"busy", "a"}, {"busy", "a"}, {"busy", "a"}, {"busy", "b"}, {"quiet", "c"}, {"busy", "b"}, {"quiet", "c"}} {
			e := store.VCSEvent{
				ID: fmt.Sprintf("%s%d", of[1], at), OrgID: of[0], IntegrationID: "int", RepoID: of[1], DeliveryID: fmt.Sprint(at), Kind: "pull", Document: "{}",
				ReceivedAt: instant(int64(at)), TryAt: instant(int64(at)),
			}
			write(t, db, func(tx *store.Tx) error { return tx.InsertVCSEvent(e) })
		}
		read(t, db, func(tx *store.Tx) error {
			all, err := tx.DueVCSEvents(instant(99), 99)
			two, err2 := tx.DueVCSEvents(instant(99), 2)
			want := []string{"a0", "c4", "b3", "c6", "a1", "b5", "a2"}
			if !slices.Equal(all, want) || !slices.Equal(two, want[:2]) {
				t.Errorf("due are %v and %v, want %v", all, two, want)
			}
			return errors.Join(err, err2)
		})
	})
}

// TestPollsTakeTurns checks that many repositories and watches of one organization that are due hide
// neither those of its other integrations nor those of other organizations.
func TestPollsTakeTurns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		i, r := vcsFixture(t, db)
		write(t, db, func(tx *store.Tx) error {
			err := tx.InsertOrganization(store.Organization{ID: "quiet", Name: "quiet", CreatedAt: instant(0)})
			for _, of := range [][2]string{{"id-acme", "second"}, {"quiet", "third"}} {
				i.ID, i.Name, i.OrgID = of[1], of[1], of[0]
				err = errors.Join(err, tx.InsertIntegration(i))
			}
			for at, integration := range []string{"int", "int", "int", "second", "third", "second", "third"} {
				org := "id-acme"
				if integration == "third" {
					org = "quiet"
				}
				id := fmt.Sprint(integration, at)
				for kind, repo := range map[string]string{"poll": id, "find": ""} {
					st := store.Stack{ID: kind + id, OrgID: org, Project: kind, Name: id, CreatedAt: instant(0)}
					w := watchOf("", repo)
					w.StackID, w.IntegrationID, w.FindAt = st.ID, integration, instant(int64(at))
					err = errors.Join(err, tx.InsertStack(st), tx.SaveWatch(w))
				}
				r.ID, r.RemoteID, r.IntegrationID, r.PollAt = id, id, integration, instant(int64(at))
				err = errors.Join(err, tx.InsertRepo(r))
			}
			return err
		})
		read(t, db, func(tx *store.Tx) error {
			repos, err := tx.ReposToPoll(instant(9), 6)
			watches, err2 := tx.WatchesToFind(instant(9), 6)
			var polls, finds []string
			for _, r := range repos {
				polls = append(polls, r.OrgID+" "+r.ID)
			}
			for _, w := range watches {
				finds = append(finds, w.OrgID+" "+strings.TrimPrefix(w.StackID, "find"))
			}
			want := []string{"id-acme int0", "quiet third4", "id-acme second3", "quiet third6", "id-acme int1", "id-acme second5"}
			if !slices.Equal(polls, want) || !slices.Equal(finds, want) {
				t.Errorf("due are the polls %q and the watches %q, want %q", polls, finds, want)
			}
			return errors.Join(err, err2)
		})
	})
}

// TestExcessVCSEvents checks that only processed events that any account of a forge can cause are removed
// because of their number, the oldest first, of each integration.
func TestExcessVCSEvents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		other, _ := vcsFixture(t, db)
		other.ID, other.Name = "a first", "a first"
		write(t, db, func(tx *store.Tx) error { return tx.InsertIntegration(other) })
		at, integration := int64(0), other.ID
		add := func(kind, repo string, done bool) string {
			at++
			e := store.VCSEvent{
				ID: fmt.Sprintf("e%02d", at), OrgID: "id-acme", IntegrationID: integration, RepoID: repo, DeliveryID: fmt.Sprint(at), Kind: kind, Document: "{}",
				Done: done, ReceivedAt: instant(at), TryAt: instant(at),
			}
			write(t, db, func(tx *store.Tx) error { return tx.InsertVCSEvent(e) })
			return e.ID
		}
		for range 3 { // one too many
			add("pull", "", true)
		}
		integration = "int"
		var want []string
		want = append(want, add("push", "repo", true), add("pull", "repo", false))
		for range 3 {
			add("pull", "repo", true)
			add("push", "", true)
		}
		want = append(want, add("pull", "repo", true), add("push", "", true))
		for _, removed := range []int64{4, 3, 0} {
			write(t, db, func(tx *store.Tx) error {
				n, err := tx.DeleteExcessVCSEvents(2, 4)
				if n != removed {
					t.Errorf("removed %d events, want %d", n, removed)
				}
				return err
			})
		}
		read(t, db, func(tx *store.Tx) error {
			rows, err := tx.VCSEventsOfIntegration("int", 100)
			var left []string
			for _, e := range rows {
				left = append(left, e.ID)
			}
			slices.Sort(left)
			if !slices.Equal(left, want) {
				t.Errorf("the events %v remain, want %v", left, want)
			}
			return err
		})
	})
}

func TestVCSPulls(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		vcsFixture(t, db)
		pull := store.VCSPull{
			ID: "p7", RepoID: "repo", Number: 7, State: "open", Head: "2", Base: "main", Source: "f", Ref: "refs/pull/7/head", Title: "t", URL: "u",
			Draft: true, Fork: true, Bot: true, AuthorID: "1", Author: "x", Labels: []string{"l"}, Approved: "2", ApprovedBy: []string{"u", "v"}, ApprovedAt: instant(1), UpdatedAt: instant(4), ReadAt: instant(2),
		}
		run := store.VCSRun{ID: "n1", StackID: "id-a", PullID: "p7", CommitID: "2", Action: "preview", DeploymentID: "d1"}
		checkout := store.VCSCheckout{
			DeploymentID: "d1", IntegrationID: "int", RepoID: "repo", CommitID: "2", Ref: "refs/pull/7/head", Branch: "f", Pull: 7, Fork: true,
			Credential: []byte{1}, ExpiresAt: instant(3),
		}
		write(t, db, func(tx *store.Tx) error {
			d := store.Deployment{ID: "d1", OrgID: "id-acme", StackID: "id-a", Version: 1, Operation: "preview", Configuration: "{}", CreatedAt: instant(0)}
			return errors.Join(tx.SavePull(pull), tx.InsertRun(run), tx.InsertDeployment(d), tx.InsertCheckout(checkout))
		})
		again := run
		again.ID = "n2"
		if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertRun(again) }); !errors.Is(err, store.ErrConflict) {
			t.Errorf("the same run again: %v", err)
		}
		read(t, db, func(tx *store.Tx) error {
			one, err := tx.VCSPull("p7")
			byNumber, err2 := tx.PullByNumber("repo", 7)
			open, err3 := tx.OpenPulls("repo")
			has, err4 := tx.HasRun(again)
			again.Cause = "x"
			other, err5 := tx.HasRun(again)
			c, err6 := tx.Checkout("d1")
			if diff := cmp.Diff([]any{pull, pull, []store.VCSPull{pull}, true, false, checkout}, []any{one, byNumber, open, has, other, c}); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			return errors.Join(err, err2, err3, err4, err5, err6)
		})
		write(t, db, func(tx *store.Tx) error {
			pull.State, checkout.Credential = "closed", nil
			return errors.Join(tx.SavePull(pull), tx.SaveCheckout(checkout))
		})
		read(t, db, func(tx *store.Tx) error {
			open, err := tx.OpenPulls("repo")
			if len(open) != 0 {
				t.Error("a closed pull request is listed as open")
			}
			return err
		})
	})
}

// TestPollsThatAreWantedMeanwhile checks that the end of a poll does not put off a poll that was wanted after it
// had begun.
func TestPollsThatAreWantedMeanwhile(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		_, r := vcsFixture(t, db)
		for _, want := range []int64{2, 9} {
			write(t, db, func(tx *store.Tx) error {
				return errors.Join(tx.PollReposNow("int", instant(2)), tx.SchedulePoll(r, instant(9)), tx.SaveRepo(r))
			})
			read(t, db, func(tx *store.Tx) (err error) {
				if r, err = tx.Repo(r.ID); !r.PollAt.Equal(instant(want)) {
					t.Errorf("the next poll is at %v, want %v", r.PollAt, instant(want))
				}
				return err
			})
		}
	})
}

// TestEndsOfSessions checks that a session does not end if it has been renewed since.
func TestEndsOfSessions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		early := store.PoolAgent{PoolID: "p", AgentID: "a", SessionID: "s", LiveUntil: instant(1)}
		late := early
		late.LiveUntil = instant(2)
		write(t, db, func(tx *store.Tx) error {
			err := errors.Join(tx.InsertOrganization(org("o")), tx.InsertPool(store.AgentPool{ID: "p", OrgID: "id-o", Name: "p"}), tx.SaveAgent(late))
			for _, a := range []store.PoolAgent{early, late} {
				ended, failed := tx.EndSession(a)
				if err = errors.Join(err, failed); ended != a.LiveUntil.Equal(late.LiveUntil) {
					t.Errorf("the end of the session until %v: %t", a.LiveUntil, ended)
				}
			}
			return err
		})
	})
}

// TestReviewStacksAreHeld checks that neither a review stack nor its template leaves its organization.
func TestReviewStacksAreHeld(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		vcsFixture(t, db)
		row := store.ReviewStack{ID: "r", OrgID: "id-acme", IntegrationID: "int", RepoID: "repo", TemplateID: "id-a", StackID: "id-b"}
		for _, orphan := range []bool{false, true} {
			write(t, db, func(tx *store.Tx) error {
				if row.Orphan = orphan; orphan {
					return tx.SaveReviewStack(row)
				}
				return tx.InsertReviewStack(row)
			})
			read(t, db, func(tx *store.Tx) error {
				for _, stack := range []string{"id-a", "id-b"} {
					if held, err := tx.HeldInOrganization(stack); err != nil || (held == "") != orphan {
						t.Errorf("the stack %s is held by %q (%v)", stack, held, err)
					}
				}
				return nil
			})
		}
	})
}

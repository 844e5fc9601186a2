package sources

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/catalog"
	"workflowagent/internal/server/vcs/integrations"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const status = "acme environments"

type fixture struct {
	*Service
	t           *testing.T
	db          *store.DB
	forge       forgetest.World
	envs        *environments.Service
	org         store.Organization
	ann         identity.Principal
	integration store.VCSIntegration
	evaluator   *evaluator.Evaluator
}

func newFixture(t *testing.T, db *store.DB) *fixture {
	t.Helper()
	ring := must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32)))(t)
	f := &fixture{t: t, db: db, forge: forgetest.Gitea(t), org: store.Organization{ID: "o", Name: "acme"}, evaluator: &evaluator.Evaluator{}}
	f.ann = identity.Principal{Kind: identity.KindUser, User: store.User{ID: "ann", Login: "ann"}, Roles: map[string]string{"o": identity.RoleAdmin}}
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(f.org) }))
	forges := integrations.New(db, integrations.Options{
		Log: storetest.Log(), Secrets: ring, Forges: catalog.Forges(), ExternalURL: "http://server.test", Reach: outbound.Reach{Anywhere: true},
	})
	name, flavor, base, token := "forge", vcs.FlavorGitea, f.forge.Connection().BaseURL, forgetest.Token
	var err error
	f.integration, _, err = forges.Create(t.Context(), f.ann, f.org, vcs.ProviderCustom, integrations.Change{
		Name: &name, Flavor: &flavor, BaseURL: &base, Token: &token,
		Settings: func(s *integrations.Settings) error {
			s.Repositories = []integrations.Listed{{Name: f.forge.Name()}}
			return nil
		},
	})
	must.OK(t, err)
	f.envs = environments.New(db, environments.Options{Log: storetest.Log(), Secrets: ring})
	f.envs.Use(f.evaluator)
	f.Service = New(db, Options{Log: storetest.Log(), Integrations: forges, Sources: source.New(f.envs)})
	return f
}

func (f *fixture) settings() Settings {
	return Settings{IntegrationID: f.integration.ID, Repository: f.forge.Name(), Branch: "main", Folder: "envs", Checks: true}
}

func (f *fixture) set(set Settings) {
	f.t.Helper()
	must.Get(f.Set(f.t.Context(), f.ann, f.org, set))(f.t)
}

// sync polls as if a delivery had come.
func (f *fixture) sync() store.EnvironmentSource {
	f.t.Helper()
	must.OK(f.t, f.db.Write(f.t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
		src, err := tx.EnvironmentSource("o")
		src.DueAt = tx.Now()
		return errors.Join(err, tx.SaveEnvironmentSource(src))
	}))
	must.OK(f.t, f.poll(f.t.Context(), "o"))
	return must.Get(f.Get(f.t.Context(), f.org))(f.t)
}

// stored describes the environments with the numbers, creators and definitions of their newest revisions.
func (f *fixture) stored() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	list, _, err := f.envs.List(f.t.Context(), f.ann, "o", store.EnvironmentName{}, 100, false)
	must.OK(f.t, err)
	for _, e := range list {
		r := must.Get(f.envs.Revision(f.t.Context(), f.ann, store.ReadEnvironment, "acme", environments.Reference{Project: e.Project, Name: e.Name}))(f.t).Revision
		out[e.Project+"/"+e.Name] = string(rune('0'+r.Number)) + " " + strings.Split(r.CreatedBy, "@")[0] + ": " + strings.TrimSpace(r.Definition)
	}
	return out
}

func (f *fixture) want(what string, want map[string]string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.stored()); diff != "" {
		f.t.Errorf("%s:\n%s", what, diff)
	}
}

// TestSynchronization creates, changes and keeps environments as commits demand, under a separate identity.
func TestSynchronization(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		by := "git " + f.forge.Name()
		own := must.Get(f.envs.Create(t.Context(), f.ann, f.org, "app", "own"))(t)
		must.Get(f.envs.Update(t.Context(), f.ann, own, "own: 1", ""))(t)
		first := f.forge.Commit(t, "main", map[string]string{"envs/app/prod.yaml": "imports:\n- app/base\n", "envs/app/base.yaml": "a: 1\n", "other/x.yaml": "no"})
		plan, commit, err := f.Preview(t.Context(), f.org, f.settings())
		if err != nil || commit != first || plan.Count(source.Create) != 2 || !slices.Equal(plan.Others, []string{"app/own"}) {
			t.Fatalf("a preview: %s, %+v, %v", commit, plan, err)
		}
		f.want("after a preview", map[string]string{"app/own": "2 ann: own: 1"})
		f.set(f.settings())
		src := f.sync()
		if src.Applied != first || src.Tried != first || src.Problem != "" || src.AppliedAt.IsZero() || src.RemoteID == "" {
			t.Errorf("the source is then %+v", src)
		}
		all := map[string]string{"app/own": "2 ann: own: 1", "app/base": "2 " + by + ": a: 1", "app/prod": "2 " + by + ": imports:\n- app/base"}
		f.want("after the first synchronization", all)
		if got := f.forge.Reports(t, first)[status]; got != "success" {
			t.Errorf("the status of the commit is %q", got)
		}
		f.sync()
		f.want("after a repetition", all)

		second := f.forge.Commit(t, "main", map[string]string{"envs/app/base.yaml": "a: 2\n"})
		if src := f.sync(); src.Applied != second {
			t.Errorf("the source is at %s", src.Applied)
		}
		all["app/base"] = "3 " + by + ": a: 2"
		f.want("after a change", all)

		broken := f.forge.Commit(t, "main", map[string]string{"envs/app/base.yaml": "BROKEN\n", "envs/app/new.yaml": "n: 1\n"})
		src = f.sync()
		if src.Applied != second || src.Tried != broken || !strings.Contains(src.Problem, "app/base.yaml: line 1: unknown word") {
			t.Errorf("the source with an error is %+v", src)
		}
		f.want("after an error", all)
		if got := f.forge.Reports(t, broken)[status]; got != "failure" {
			t.Errorf("the status of the commit with an error is %q", got)
		}
		f.forge.Commit(t, "main", map[string]string{"envs/app/base.yaml": "password: {fn::secret: planted}\n"})
		if src = f.sync(); !strings.Contains(src.Problem, "plain text") || strings.Contains(src.Problem, "planted") {
			t.Errorf("the problem of a plaintext secret is %q", src.Problem)
		}
		f.want("after a plaintext secret", all)

		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			rows, err := tx.AuditEntries(store.AuditFilter{OrgID: "o", Limit: 100})
			actors := map[string]bool{}
			for _, e := range rows {
				if strings.HasPrefix(e.Action, "environment.") {
					actors[e.ActorKind+" "+e.Way+" "+strings.Split(e.Actor, "@")[0]] = true
				}
			}
			if got := slices.Sorted(maps.Keys(actors)); !slices.ContainsFunc(got, func(a string) bool { return strings.Contains(a, by) }) {
				t.Errorf("the actors in the audit log are %q", got)
			}
			return err
		}))
	})
}

// TestDeletion deletes only what came from the repository, and only if the settings demand it.
func TestDeletion(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		by := "git " + f.forge.Name()
		must.Get(f.envs.Create(t.Context(), f.ann, f.org, "app", "own"))(t)
		f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n", "envs/app/b.yaml": "b: 1\n"})
		f.set(f.settings())
		f.sync()
		f.forge.Move(t, "main", "envs/app/b.yaml", "envs/app/c.yaml")
		f.sync()
		all := map[string]string{"app/own": "1 ann: ", "app/a": "2 " + by + ": a: 1", "app/b": "2 " + by + ": b: 1", "app/c": "2 " + by + ": b: 1"}
		f.want("without deletions", all)
		deleting := f.settings()
		deleting.Deletes = true
		f.set(deleting)
		f.sync()
		delete(all, "app/b")
		f.want("with deletions", all)
		deleting.Folder = "missing"
		f.set(deleting)
		if src := f.sync(); src.Problem == "" {
			t.Error("a missing folder is no problem")
		}
		f.want("without the folder", all)
	})
}

// TestManualChange keeps what was changed by hand until the next synchronization.
func TestManualChange(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
	f.set(f.settings())
	f.sync()
	e := must.Get(f.envs.Find(t.Context(), f.ann, store.WriteEnvironment, "acme", "app", "a"))(t)
	must.Get(f.envs.Update(t.Context(), f.ann, e, "a: 9", ""))(t)
	f.sync()
	f.want("without a new commit", map[string]string{"app/a": "3 ann: a: 9"})
	must.OK(t, f.SyncNow(t.Context(), f.org))
	f.sync()
	f.want("after a request", map[string]string{"app/a": "4 git " + f.forge.Name() + ": a: 1"})
}

// TestPulls reports on the definitions of pull requests, also of forks, and changes nothing. Imports that are only on the
// server are not read.
func TestPulls(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
		f.set(f.settings())
		f.sync()
		before := f.stored()
		good := f.forge.Commit(t, "good", map[string]string{"envs/app/a.yaml": "a: 2\n"})
		f.forge.OpenPull(t, forgetest.NewPull{Source: "good"})
		bad := f.forge.Commit(t, "bad", map[string]string{"envs/app/a.yaml": "BROKEN\n"})
		number := f.forge.OpenPull(t, forgetest.NewPull{Source: "bad", Fork: true})
		outside := f.forge.Commit(t, "outside", map[string]string{"envs/app/a.yaml": "imports:\n- app/secret\n"})
		f.forge.OpenPull(t, forgetest.NewPull{Source: "outside", Fork: true})
		checks := 0
		f.evaluator.Checking = func() { checks++ }
		f.sync()
		for commit, want := range map[string]string{good: "success", bad: "failure", outside: "success"} {
			if got := f.forge.Reports(t, commit)[status]; got != want {
				t.Errorf("the status of %s is %q, not %q", commit, got, want)
			}
		}
		f.want("after the checks", before)
		if f.sync(); checks != 3 {
			t.Errorf("%d checks of 3 commits", checks)
		}
		repaired := f.forge.Commit(t, "bad", map[string]string{"envs/app/a.yaml": "a: 3\n"})
		if f.sync(); f.forge.Reports(t, repaired)[status] != "success" || checks != 4 {
			t.Errorf("after a repair: status %q, %d checks", f.forge.Reports(t, repaired)[status], checks)
		}
		f.forge.SetPull(t, number, vcs.PullClosed)
		f.sync()
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			if c, err := tx.EnvironmentCheck("o", int64(number)); store.IgnoreMissing(err) != nil || c.OrgID != "" {
				t.Errorf("the check of a closed pull request remains: %+v, %v", c, err)
			}
			return nil
		}))
	})
}

// TestDeliveries makes polls due, for events about the branch and the repository.
func TestDeliveries(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
	f.set(f.settings())
	id := f.sync().RemoteID
	for _, c := range []struct {
		event vcs.Event
		want  bool
	}{
		{vcs.Event{Kind: vcs.KindPush, Repo: vcs.RepoID{ID: id, Name: f.forge.Name()}, Ref: "refs/heads/main"}, true},
		{vcs.Event{Kind: vcs.KindPush, Repo: vcs.RepoID{ID: id, Name: "acme/renamed"}, Ref: "refs/heads/main"}, true},
		{vcs.Event{Kind: vcs.KindPull, Repo: vcs.RepoID{ID: id, Name: f.forge.Name()}, Pull: 1}, true},
		{vcs.Event{Kind: vcs.KindPush, Repo: vcs.RepoID{ID: id, Name: f.forge.Name()}, Ref: "refs/heads/other"}, false},
		{vcs.Event{Kind: vcs.KindTag, Repo: vcs.RepoID{ID: id, Name: f.forge.Name()}, Ref: "refs/tags/v1"}, false},
		{vcs.Event{Kind: vcs.KindPush, Repo: vcs.RepoID{ID: "other", Name: "acme/other"}, Ref: "refs/heads/main"}, false},
	} {
		f.sync()
		var heard bool
		must.OK(t, f.db.Write(t.Context(), scope.Free, func(tx *store.Tx) (err error) {
			heard, err = f.Heard(tx, f.integration, c.event)
			return err
		}))
		src := must.Get(f.Get(t.Context(), f.org))(t)
		if due := !src.DueAt.After(time.Now()); heard != c.want || due != c.want {
			t.Errorf("%+v: heard %v, due %v", c.event, heard, due)
		}
	}
}

// TestSettings refuses what the integration does not allow.
func TestSettings(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	for what, change := range map[string]func(*Settings){
		"another repository":   func(s *Settings) { s.Repository = "acme/other" },
		"no integration":       func(s *Settings) { s.IntegrationID = "missing" },
		"no branch":            func(s *Settings) { s.Branch = "" },
		"an option of git":     func(s *Settings) { s.Branch = "--upload-pack=x" },
		"a parent folder":      func(s *Settings) { s.Folder = "../x" },
		"a folder with parent": func(s *Settings) { s.Folder = "a/../b" },
		"a long folder":        func(s *Settings) { s.Folder = strings.Repeat("x", 501) },
	} {
		set := f.settings()
		change(&set)
		if _, err := f.Set(t.Context(), f.ann, f.org, set); fault.KindOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := f.Get(t.Context(), f.org); fault.KindOf(err) != fault.KindNotFound {
		t.Errorf("reading a missing source: %v", err)
	}
	if err := f.Remove(t.Context(), f.org); fault.KindOf(err) != fault.KindNotFound {
		t.Errorf("removing a missing source: %v", err)
	}
	for given, want := range map[string]string{"": "", ".": "", "/envs/": "envs", "a/b": "a/b"} {
		set := f.settings()
		set.Folder = given
		if src := must.Get(f.Set(t.Context(), f.ann, f.org, set))(t); src.Folder != want {
			t.Errorf("the folder %q is stored as %q", given, src.Folder)
		}
	}
	must.OK(t, f.Remove(t.Context(), f.org))
}

// TestReplaced takes nothing from another repository that has the name of the former one, and tries again after a failure.
func TestReplaced(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
	f.set(f.settings())
	f.sync()
	must.OK(t, f.db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
		src, err := tx.EnvironmentSource("o")
		src.RemoteID = "another"
		return errors.Join(err, tx.SaveEnvironmentSource(src))
	}))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 2\n"})
	src := f.sync()
	if !strings.Contains(src.Problem, "another repository") || src.Failures != 1 || !src.DueAt.After(time.Now()) {
		t.Errorf("the source is %+v", src)
	}
	f.want("after a replacement", map[string]string{"app/a": "2 git " + f.forge.Name() + ": a: 1"})
	f.set(f.settings())
	f.sync()
	f.want("after the settings were saved again", map[string]string{"app/a": "3 git " + f.forge.Name() + ": a: 2"})
}

// TestProblemsEnd shows a failure of a poll only until a poll succeeds, although there is no other commit.
func TestProblemsEnd(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
	f.set(f.settings())
	id := f.sync().RemoteID
	moveTo := func(id string) {
		must.OK(t, f.db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			src, err := tx.EnvironmentSource("o")
			src.RemoteID = id
			return errors.Join(err, tx.SaveEnvironmentSource(src))
		}))
	}
	moveTo("another")
	if src := f.sync(); src.Problem == "" {
		t.Error("a failed poll is no problem")
	}
	moveTo(id)
	if src := f.sync(); src.Problem != "" || src.Failures != 0 {
		t.Errorf("after a poll that succeeded: %+v", src)
	}
	moveTo("another")
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "BROKEN\n"})
	f.sync()
	moveTo(id)
	for range 2 {
		if src := f.sync(); !strings.Contains(src.Problem, "unknown word") {
			t.Errorf("the problem of a definition is %q", src.Problem)
		}
	}
}

// TestSetMeanwhile sets the source during a synchronization, which then records nothing as coming from the repository.
func TestSetMeanwhile(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
	f.set(f.settings())
	f.evaluator.Checking = func() {
		f.evaluator.Checking = nil
		f.set(f.settings())
	}
	if src := f.sync(); src.Applied != "" || src.Problem != "" {
		t.Errorf("the source is %+v", src)
	}
	origins := func() []store.EnvironmentOrigin {
		return must.Get(store.Read(t.Context(), f.db, func(tx *store.Tx) ([]store.EnvironmentOrigin, error) { return tx.EnvironmentOrigins("o") }))(t)
	}
	if got := origins(); len(got) != 0 {
		t.Errorf("the origins are %+v", got)
	}
	if src := f.sync(); src.Applied == "" || len(origins()) != 1 {
		t.Errorf("the next synchronization: %+v, %+v", src, origins())
	}
}

// TestFailedChecks checks other pull requests although one cannot be checked, and tells their authors nothing of the server.
func TestFailedChecks(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.forge.Commit(t, "main", map[string]string{"envs/app/a.yaml": "a: 1\n"})
	f.set(f.settings())
	f.sync()
	many := map[string]string{}
	for i := range 10_001 {
		many[fmt.Sprintf("envs/app/e%d.yaml", i)] = ""
	}
	for _, c := range []struct {
		branch, want string
		files        map[string]string
	}{
		{"first", "success", map[string]string{"envs/app/a.yaml": "a: 2\n"}},
		{"many", "failure", many},
		{"last", "success", map[string]string{"envs/app/b.yaml": "a: 2\n"}},
	} {
		commit := f.forge.Commit(t, c.branch, c.files)
		f.forge.OpenPull(t, forgetest.NewPull{Source: c.branch, Fork: true})
		defer func() {
			if got := f.forge.Reports(t, commit)[status]; got != c.want {
				t.Errorf("the status of %s is %q, want %q", c.branch, got, c.want)
			}
		}()
	}
	if src := f.sync(); src.Failures != 0 || src.Problem != "" {
		t.Errorf("the source is %+v", src)
	}
}

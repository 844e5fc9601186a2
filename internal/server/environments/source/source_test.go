package source_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

type fixture struct {
	*source.Service
	t    *testing.T
	db   *store.DB
	envs *environments.Service
	org  store.Organization
	p    identity.Principal
}

func newFixture(t *testing.T, db *store.DB) *fixture {
	t.Helper()
	ring := must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32)))(t)
	f := &fixture{t: t, db: db, org: store.Organization{ID: "o", Name: "acme"}, p: identity.Operator()}
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(f.org) }))
	f.envs = environments.New(db, environments.Options{Log: storetest.Log(), Secrets: ring})
	f.envs.Use(&evaluator.Evaluator{})
	f.Service = source.New(f.envs)
	return f
}

// files returns the files with pairs of path and definition.
func files(pairs ...string) (list []source.File) {
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, source.File{Path: pair[0], Definition: pair[1]})
	}
	return list
}

func (f *fixture) plan(o source.Options, list []source.File) source.Plan {
	f.t.Helper()
	return must.Get(f.Plan(f.t.Context(), f.p, f.org, list, o))(f.t)
}

// apply plans and applies, and returns the actions.
func (f *fixture) apply(o source.Options, list []source.File) []string {
	f.t.Helper()
	p := f.plan(o, list)
	if err := f.Apply(f.t.Context(), f.p, f.org, p, nil); err != nil {
		f.t.Error(err)
	}
	return actions(p)
}

func actions(p source.Plan) (list []string) {
	for _, s := range p.Steps {
		list = append(list, string(s.Action)+" "+s.Environment)
	}
	return list
}

// stored returns the number and the definition of an environment's newest revision.
func (f *fixture) stored(project, name string) (int64, string) {
	f.t.Helper()
	found, err := f.envs.Revision(f.t.Context(), f.p, store.ReadEnvironment, "acme", environments.Reference{Project: project, Name: name})
	if err != nil {
		return 0, ""
	}
	return found.Revision.Number, found.Revision.Definition
}

func (f *fixture) want(what string, got, want any) {
	f.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s:\n%s", what, diff)
	}
}

// TestImport creates, changes and keeps environments: revisions are made only where a definition differs.
func TestImport(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		first := files("web/prod.yaml", "imports:\n- app/base\n", "app/base.yml", "a: 1\n", "README.yaml", "text")
		dry := f.plan(source.Options{Differences: true}, first)
		f.want("the steps", actions(dry), []string{"create app/base", "create web/prod"})
		f.want("the difference", dry.Steps[0].Difference, []string{"+a: 1"})
		f.want("what is ignored", dry.Ignored, []string{"README.yaml"})
		if n, _ := f.stored("app", "base"); n != 0 {
			t.Error("a plan has created an environment")
		}
		f.apply(source.Options{}, first)
		f.want("the steps of a repetition", f.apply(source.Options{}, first), []string{"keep app/base", "keep web/prod"})
		if n, text := f.stored("app", "base"); n != 2 || text != "a: 1\n" {
			t.Errorf("app/base has revision %d: %q", n, text)
		}
		changed := files("app/base.yaml", "a: 2\n")
		dry = f.plan(source.Options{Differences: true}, changed)
		f.want("the difference of a change", dry.Steps[0].Difference, []string{"-a: 1", "+a: 2"})
		f.want("what the folder does not contain", dry.Others, []string{"web/prod"})
		f.apply(source.Options{}, changed)
		if n, text := f.stored("app", "base"); n != 3 || text != "a: 2\n" {
			t.Errorf("app/base has revision %d: %q", n, text)
		}
		if n, _ := f.stored("web", "prod"); n != 2 {
			t.Errorf("an environment that the folder does not contain has revision %d", n)
		}
	})
}

// TestOrder applies what others import first, although its name is last.
func TestOrder(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	var order []string
	plan := f.plan(source.Options{}, files("a/a.yaml", "imports:\n- z/z\n- m/m\n", "m/m.yaml", "imports:\n- z/z\n", "z/z.yaml", "x: 1\n"))
	must.OK(t, f.Apply(t.Context(), f.p, f.org, plan, func(_ store.Environment, s source.Step) error {
		order = append(order, s.Environment)
		return nil
	}))
	f.want("the order", order, []string{"z/z", "m/m", "a/a"})
}

// TestProblems changes nothing if one of the definitions has an error.
func TestProblems(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		plan := f.plan(source.Options{}, files("app/a.yaml", "a: 1\n", "app/b.yaml", "BROKEN\n"))
		if !plan.Failed() || plan.Summary() != "app/b.yaml: line 1: unknown word BROKEN" {
			t.Errorf("the plan says %q", plan.Summary())
		}
		if err := f.Apply(t.Context(), f.p, f.org, plan, nil); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("applying it: %v", err)
		}
		if n, _ := f.stored("app", "a"); n != 0 {
			t.Error("an environment was created")
		}
		for what, list := range map[string][]source.File{
			"two files of one environment": files("app/a.yaml", "", "app/a.yml", ""),
			"a name with a version":        files("app/a@1.yaml", ""),
			"an invalid name":              files("app/a b.yaml", ""),
			"too many bytes":               files("app/a.yaml", strings.Repeat("x", source.MaxBytes+1)),
		} {
			if _, err := f.Plan(t.Context(), f.p, f.org, list, source.Options{}); fault.KindOf(err) == "" {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestSecrets refuses plaintext secrets unless they are asked for, and then makes no revision for equal ones.
func TestSecrets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		list := files("app/prod.yaml", "password: {fn::secret: planted}\n")
		refused := f.plan(source.Options{Differences: true}, list)
		if !refused.Failed() || strings.Contains(refused.Summary(), "planted") || len(refused.Steps[0].Difference) > 0 {
			t.Errorf("without permission: %q, %q", refused.Summary(), refused.Steps[0].Difference)
		}
		asked := source.Options{Plaintext: true, Differences: true}
		plan := f.plan(asked, list)
		if text := strings.Join(plan.Steps[0].Difference, "\n"); strings.Contains(text, "planted") || !strings.Contains(text, "ciphertext") {
			t.Errorf("the difference is %q", text)
		}
		f.apply(asked, list)
		_, sealed := f.stored("app", "prod")
		if strings.Contains(sealed, "planted") || !strings.Contains(sealed, "ciphertext") {
			t.Errorf("the stored definition is %q", sealed)
		}
		f.want("the same secret", f.apply(asked, list), []string{"keep app/prod"})
		f.want("its ciphertext", f.apply(source.Options{}, files("app/prod.yaml", sealed)), []string{"keep app/prod"})
		f.want("another secret", f.apply(asked, files("app/prod.yaml", "password: {fn::secret: other}\n")), []string{"change app/prod"})
	})
}

// TestDelete deletes only what it is asked to delete, and nothing if one of them is protected.
func TestDelete(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db)
		f.apply(source.Options{}, files("app/a.yaml", "a: 1\n", "app/b.yaml", "b: 1\n", "app/c.yaml", "c: 1\n"))
		only := files("app/a.yaml", "a: 1\n")
		f.want("without deletions", f.apply(source.Options{}, only), []string{"keep app/a"})
		o := source.Options{Deletes: func(e store.Environment) bool { return e.Name == "b" }}
		b := must.Get(f.envs.Find(t.Context(), f.p, store.AdminEnvironment, "acme", "app", "b"))(t)
		on, off := true, false
		must.OK(t, f.envs.SetSettings(t.Context(), f.p, b, environments.Settings{Protected: &on}))
		if plan := f.plan(o, only); !plan.Failed() {
			t.Error("a protected environment would be deleted")
		}
		must.OK(t, f.envs.SetSettings(t.Context(), f.p, b, environments.Settings{Protected: &off}))
		f.want("with deletions", f.apply(o, only), []string{"keep app/a", "delete app/b"})
		if n, _ := f.stored("app", "b"); n != 0 {
			t.Error("the environment still exists")
		}
		if n, _ := f.stored("app", "c"); n == 0 {
			t.Error("an environment was deleted that was not to be")
		}
	})
}

// TestManaged deletes no environment that a stack manages.
func TestManaged(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.apply(source.Options{}, files("app/a.yaml", "a: 1\n", "app/dev.yaml", "dev: 1\n"))
	e := must.Get(f.envs.Find(t.Context(), f.p, store.AdminEnvironment, "acme", "app", "dev"))(t)
	must.OK(t, f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return errors.Join(
			tx.InsertStack(store.Stack{ID: "s", OrgID: "o", Project: "app", Name: "dev", CreatedAt: tx.Now()}),
			tx.InsertManagedEnvironment(store.ManagedEnvironment{StackID: "s", EnvironmentID: e.ID, CreatedAt: tx.Now()}),
		)
	}))
	o := source.Options{Deletes: func(store.Environment) bool { return true }}
	f.want("the steps", f.apply(o, files("app/b.yaml", "b: 1\n")), []string{"create app/b", "delete app/a"})
	if n, _ := f.stored("app", "dev"); n == 0 {
		t.Error("the environment of a stack was deleted")
	}
}

// TestClosed does not check imports that are not in the folder, but everything else.
func TestClosed(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	o := source.Options{Closed: true}
	plan := f.plan(o, files("app/a.yaml", "imports:\n- other/thing\n- app/b\n", "app/b.yaml", "b: 1\n"))
	f.want("what was not checked", plan.Steps[0].Unchecked, []string{"other/thing"})
	if plan.Failed() {
		t.Errorf("the plan fails: %s", plan.Summary())
	}
	o.MaxChecks = 1
	if plan := f.plan(o, files("app/a.yaml", "a: 1\n", "app/b.yaml", "b: 1\n")); !plan.Failed() {
		t.Error("more definitions were checked than allowed")
	}
}

// TestChangedMeanwhile does not overwrite a revision that the plan has not seen.
func TestChangedMeanwhile(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t))
	f.apply(source.Options{}, files("app/a.yaml", "a: 1\n"))
	plan := f.plan(source.Options{}, files("app/a.yaml", "a: 2\n"))
	f.apply(source.Options{}, files("app/a.yaml", "a: 3\n"))
	if err := f.Apply(t.Context(), f.p, f.org, plan, nil); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("an outdated plan: %v", err)
	}
	if _, text := f.stored("app", "a"); text != "a: 3\n" {
		t.Errorf("the definition is %q", text)
	}
}

func TestWanted(t *testing.T) {
	for name, want := range map[string]bool{
		"app/": true, ".github/": false, "app/more/": false,
		"app/prod.yaml": true, "app/prod.yml": true, "prod.yaml": true, "app/.hidden.yaml": false, ".ci/x.yaml": false, "app/README.md": false, "app/more/prod.yaml": false,
	} {
		if got := source.Wanted(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

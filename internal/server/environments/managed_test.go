package environments_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// managed is a stack that manages an environment.
type managed struct {
	*fixture
	t     *testing.T
	stack store.Stack
	env   store.Environment
}

// manage creates the stack app/NAME, which manages an environment.
func (f *fixture) manage(t *testing.T, name string) *managed {
	t.Helper()
	m := &managed{fixture: f, t: t, stack: store.Stack{ID: "stack-" + name, OrgID: "o", OrgName: "acme", Project: "app", Name: name, CreatedAt: time.Now()}}
	c := must.Get(f.NewConfiguration(t.Context(), f.ann, f.acme, "app", name, true))(t)
	must.OK(t, f.db.Write(t.Context(), scope.Organization("o").And(scope.Stack("o", m.stack.ID)), func(tx *store.Tx) (err error) {
		must.OK(t, tx.InsertStack(m.stack))
		m.env, err = f.CreateConfiguration(t.Context(), tx, f.ann, m.stack, *c)
		return err
	}))
	return m
}

// token adds a token of a caller, and returns the caller with it.
func (m *managed) token(p identity.Principal, id string) identity.Principal {
	m.t.Helper()
	p.TokenID = id
	must.OK(m.t, m.db.Write(m.t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertToken(store.Token{ID: id, Hash: []byte(id), Kind: store.OrgToken, OrgID: "o", Name: id})
	}))
	return p
}

// job returns the job of a deployment of the stack that no user has requested.
func (m *managed) job(id string, abilities identity.Ability) identity.Principal {
	m.t.Helper()
	return m.token(identity.Principal{Kind: identity.KindJob, Org: store.Organization{ID: "o", Name: "acme"}, DeploymentID: "d", Scope: identity.Scope{m.stack.ID: abilities}}, id)
}

func (m *managed) draft(p identity.Principal, definition string) (string, error) {
	d, err := m.Draft(m.t.Context(), p, "acme", m.env.Project, m.env.Name, definition, "")
	return d.ID, err
}

// up admits and starts an update that was evaluated with a draft.
func (m *managed) up(p identity.Principal, draft string, preview bool) error {
	m.t.Helper()
	ctx := context.WithoutCancel(m.t.Context())
	u := store.Update{ID: identity.NewID(), StackID: m.stack.ID, RequestedBy: p.User.ID, Version: 7, Preview: preview}
	return m.db.Write(ctx, scope.Organization("o").And(m.stack.Scope()), func(tx *store.Tx) error {
		pub := environments.Publication{Base: 1, Draft: draft}
		if err := environments.Admit(tx, p, m.stack, pub, preview); err != nil {
			return err
		}
		return m.Publish(ctx, tx, m.stack, u, pub)
	})
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want || want == "" && err != nil {
		t.Errorf("%s: %v, want an error of the kind %q", what, err, want)
	}
}

// TestManagedEnvironments makes, evaluates and publishes drafts of an environment that a stack manages.
func TestManagedEnvironments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		f.create(t, "dev") // so that the name is taken
		m := f.manage(t, "dev")
		if m.env.Name != "dev-2" || must.Get(m.Managed(t.Context(), m.stack))(t) != "app/dev-2" {
			t.Fatalf("the environment is %s", m.env.Ref())
		}
		ann, bob, again := m.token(f.ann, "ann"), m.token(f.bob, "bob"), m.token(f.ann, "again")

		draft := must.Get(m.draft(ann, "a: {fn::secret: planted}\nimports:\n- app/base\n"))(t)
		found := must.Get(m.FindDraft(t.Context(), ann, "acme", "app", "dev-2", draft))(t)
		if text := found.Revision.Definition; strings.Contains(text, "planted") || !strings.Contains(text, "ciphertext") || found.Revision.Number != 1 {
			t.Errorf("the draft changes revision %d to %q", found.Revision.Number, text)
		}
		_, err := m.FindDraft(t.Context(), again, "acme", "app", "dev-2", draft)
		wantKind(t, "a draft of another token", err, fault.KindNotFound)
		wantKind(t, "an update with a draft of another token", m.up(again, draft, false), fault.KindNotFound)
		_, err = m.draft(bob, "a: 1")
		wantKind(t, "a draft of a caller who may only open", err, fault.KindForbidden)
		_, err = m.Draft(t.Context(), ann, "acme", "app", "dev", "a: 1", "")
		wantKind(t, "a draft of an environment that no stack manages", err, fault.KindNotFound)
		_, err = m.Draft(t.Context(), ann, "acme", "app", "dev-2", "a: 1", `"other-1"`)
		wantKind(t, "a draft of what has changed", err, fault.KindConflict)
		if _, err := m.draft(ann, "BROKEN"); err == nil {
			t.Error("a draft has errors")
		}

		wantKind(t, "a preview", m.up(ann, draft, true), "")
		if got := m.read(t, m.env, ""); got != "1 values:\n  pulumiConfig: {}\n" {
			t.Errorf("after a preview, the environment is %q", got)
		}
		other := must.Get(m.draft(ann, "a: 2\n"))(t)
		same := must.Get(m.draft(ann, found.Revision.Definition))(t)
		wantKind(t, "an update", m.up(ann, draft, false), "")
		if got := m.read(t, m.env, ""); got != "2 "+found.Revision.Definition {
			t.Errorf("after an update, the environment is %q", got)
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			r := must.Get(tx.RevisionInfo(m.env.ID, 2))(t)
			imports := must.Get(tx.EnvironmentImports(m.env.ID, 2))(t)
			if r.CreatedBy != "ann" || len(imports) != 1 || imports[0].Name != "base" {
				t.Errorf("the revision is %+v with the imports %+v", r, imports)
			}
			return nil
		}))
		wantKind(t, "an update with a draft of an older revision", m.up(ann, other, false), fault.KindInvalid)
		wantKind(t, "an update that would publish the same", m.up(ann, same, false), "")
		if got := m.read(t, m.env, ""); !strings.HasPrefix(got, "2 ") {
			t.Errorf("the environment is then %q", got)
		}

		e := must.Get(m.Find(t.Context(), ann, store.AdminEnvironment, "acme", "app", "dev-2"))(t)
		wantKind(t, "the deletion of a managed environment", m.Delete(t.Context(), ann, e), fault.KindConflict)
		must.OK(t, m.Sweep(t.Context()))
		m.read(t, e, "")
		must.OK(t, db.Write(t.Context(), m.stack.Scope(), func(tx *store.Tx) error { return tx.RemoveStack(m.stack.ID) }))
		must.OK(t, m.Sweep(t.Context()))
		if got := m.read(t, e, ""); got != string(fault.KindNotFound) {
			t.Errorf("after the purge of its stack, the environment is %q", got)
		}
	})
}

// TestJobsOnManagedEnvironments checks what jobs, which no user has requested, may do with the environment of their stack, and
// with that of another one.
func TestJobsOnManagedEnvironments(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t), 0)
	m, other := f.manage(t, "dev"), f.manage(t, "other")
	const previews = identity.StateRead | identity.Decrypt | identity.Preview
	const updates = previews | identity.DecryptConfig | identity.Write
	for _, test := range []struct {
		name                   string
		abilities              identity.Ability
		proven, own            bool
		requester              string
		opens, drafts, updates bool
	}{
		{"update", updates, true, true, "", true, true, true},
		{"preview", previews, true, true, "", true, true, false},
		{"evaluation", identity.StateRead, false, false, "", false, false, false},
		{"another branch", updates, true, false, "", true, true, false},
		{"fork", updates, false, false, "", false, false, false},
		{"repository in the request of an administrator", updates, false, false, identity.RoleAdmin, true, true, true},
		{"repository in the request of a member", updates, false, false, identity.RoleMember, true, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := m.job(test.name, test.abilities)
			if test.proven {
				job.Scope = job.Scope.WithConfiguration(test.own)
			}
			if test.requester != "" {
				job.Scope[identity.Environments] = identity.Outputs
				job.User, job.Roles = store.User{ID: "requester", Login: "requester"}, map[string]string{"o": test.requester}
			}
			may := func(what string, err error, want bool) {
				t.Helper()
				if (err == nil) != want {
					t.Errorf("%s: %v, want success: %t", what, err, want)
				}
			}
			_, err := f.Find(t.Context(), job, store.OpenEnvironment, "acme", "app", "dev")
			may("opening", err, test.opens)
			_, err = f.Find(t.Context(), job, store.WriteEnvironment, "acme", "app", "dev")
			may("changing it directly", err, false)
			_, err = f.Find(t.Context(), job, store.ReadEnvironment, "acme", "app", "other")
			may("reading another one", err, test.requester != "")
			_, err = other.draft(job, "a: 1")
			may("a draft of another one", err, false)
			_, err = f.Find(t.Context(), job, store.WriteEnvironment, "acme", "app", "other")
			may("changing another one", err, false)
			draft, err := m.draft(job, "a: "+test.name)
			may("a draft", err, test.drafts)
			if test.drafts {
				may("a preview", m.up(job, draft, true), true)
				may("an update", m.up(job, draft, false), test.updates)
				may("an update of another stack", other.up(job, draft, false), false)
			}
		})
	}
	if got := m.read(t, m.env, ""); got != "3 a: repository in the request of an administrator" {
		t.Errorf("the environment is then %q", got)
	}
}

// TestDraftsEnd checks that drafts end with their token, with their age, and when there are many.
func TestDraftsEnd(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		m := f.manage(t, "dev")
		ann, robot := m.token(f.ann, "ann"), m.token(f.ann, "robot")
		first, second := must.Get(m.draft(ann, "a: 1"))(t), must.Get(m.draft(robot, "a: 2"))(t)
		exists := func(id string) bool {
			t.Helper()
			_, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.EnvironmentDraft, error) { return tx.EnvironmentDraft(m.env.ID, id) })
			must.OK(t, store.IgnoreMissing(err))
			return err == nil
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { _, err := tx.Exec("DELETE FROM tokens WHERE id = 'robot'"); return err }))
		if exists(second) {
			t.Error("a draft remains without its token")
		}
		must.OK(t, m.Sweep(t.Context()))
		if !exists(first) {
			t.Error("a new draft was removed")
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			d := must.Get(tx.EnvironmentDraft(m.env.ID, first))(t)
			d.ID, d.CreatedAt = "newer", d.CreatedAt.Add(time.Second)
			return tx.InsertEnvironmentDraft(d, 1)
		}))
		if exists(first) || !exists("newer") {
			t.Error("not the newest draft was kept")
		}
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.DeleteOldDrafts(tx.Now().Add(time.Hour), 10)
			return err
		}))
		if exists("newer") {
			t.Error("an old draft remains")
		}
	})
}

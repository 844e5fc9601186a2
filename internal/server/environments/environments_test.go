package environments_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

type fixture struct {
	*environments.Service
	evaluator *evaluator.Evaluator
	db        *store.DB
	acme      store.Organization
	ann, bob  identity.Principal // an administrator and a member
}

func newFixture(t *testing.T, db *store.DB, limit int64) *fixture {
	t.Helper()
	ring := must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32)))(t)
	f := &fixture{db: db, evaluator: &evaluator.Evaluator{}, acme: store.Organization{ID: "o", Name: "acme", EnvironmentPermission: store.OpenEnvironment}}
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		must.OK(t, tx.InsertOrganization(f.acme))
		for _, name := range []string{"ann", "bob"} {
			must.OK(t, tx.InsertUser(store.User{ID: name, Login: name, Name: name}))
		}
		return nil
	}))
	f.ann = identity.Principal{Kind: identity.KindUser, User: store.User{ID: "ann", Login: "ann"}, Roles: map[string]string{"o": identity.RoleAdmin}}
	f.bob = identity.Principal{Kind: identity.KindUser, User: store.User{ID: "bob", Login: "bob"}, Roles: map[string]string{"o": identity.RoleMember}}
	f.Service = environments.New(db, environments.Options{Log: storetest.Log(), Secrets: ring, Quota: quota.New(db, storetest.Log(), limit)})
	f.Use(f.evaluator)
	return f
}

func (f *fixture) create(t *testing.T, name string) store.Environment {
	t.Helper()
	return must.Get(f.Create(t.Context(), f.ann, f.acme, "app", name))(t)
}

func (f *fixture) update(t *testing.T, e store.Environment, definition string) store.Environment {
	t.Helper()
	return must.Get(f.Update(t.Context(), f.ann, e, definition, ""))(t).Environment
}

func (f *fixture) read(t *testing.T, e store.Environment, version string) string {
	t.Helper()
	found, err := f.Revision(t.Context(), f.ann, store.ReadEnvironment, "acme", environments.Reference{Project: e.Project, Name: e.Name, Version: version})
	if err != nil {
		return string(fault.KindOf(err))
	}
	return fmt.Sprint(found.Revision.Number, " ", found.Revision.Definition)
}

// TestSecretsAreEncrypted searches all rows for the secret of a definition, and stores no definition whose secrets could
// not be encrypted.
func TestSecretsAreEncrypted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.create(t, "prod")
		e = f.update(t, e, "values:\n  password: {fn::secret: planted-secret}\n")
		found := must.Get(f.Revision(t.Context(), f.bob, store.OpenEnvironment, "acme", environments.Reference{Project: "app", Name: "prod"}))(t)
		if text := found.Revision.Definition; strings.Contains(text, "planted") || !strings.Contains(text, "ciphertext") {
			t.Errorf("the stored definition is %q", text)
		}
		if text := must.Get(f.Decrypt(t.Context(), f.bob, found))(t); !strings.Contains(text, "planted-secret") {
			t.Errorf("the decrypted definition is %q", text)
		}
		f.evaluator.Fail = errors.New("the evaluator was killed")
		if _, err := f.Update(t.Context(), f.ann, e, "password: {fn::secret: planted-too}\n", ""); err == nil {
			t.Error("a definition was stored although its secrets could not be encrypted")
		}
		f.evaluator.Fail = nil
		if got := f.read(t, e, ""); !strings.HasPrefix(got, "2 ") || strings.Contains(got, "planted-too") {
			t.Errorf("the definition is then %q", got)
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			relations, err := tx.Relations()
			for _, r := range relations {
				must.OK(t, tx.EachRow(r, func(values []any) error {
					if text := fmt.Sprintf("%s %q", r.Name, values); strings.Contains(text, "planted") {
						t.Errorf("a row contains the secret: %s", text)
					}
					return nil
				}))
			}
			return err
		}))
	})
}

// TestKeysDiffer decrypts a ciphertext of one environment as that of another one.
func TestKeysDiffer(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t), 0)
	a, b := f.create(t, "a"), f.create(t, "b")
	of := func(e store.Environment) *environments.Key { return must.Get(f.Key(t.Context(), e))(t) }
	ciphertext := of(a).Encrypt([]byte("x"))
	if plain, err := of(a).Decrypt(ciphertext); err != nil || string(plain) != "x" {
		t.Errorf("the own key: %q, %v", plain, err)
	}
	if _, err := of(b).Decrypt(ciphertext); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("the key of another environment: %v", err)
	}
	moved := b
	moved.SealedKey = a.SealedKey // as one who may only change rows of the database could do
	if _, err := f.Key(t.Context(), moved); fault.KindOf(err) != fault.KindDamaged {
		t.Errorf("the sealed key of another environment: %v", err)
	}
}

// TestConditions changes a definition that has changed since it was read, also while the change is being checked.
func TestConditions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.create(t, "prod")
		first := environments.ETag(e.ID, 1)
		for _, condition := range []string{first, "W/" + first, strings.Trim(first, `"`), `"x", ` + first, "*"} {
			f.evaluator.Fail = errors.New("reached")
			if _, err := f.Update(t.Context(), f.ann, e, "a: 1", condition); err == nil || !strings.Contains(err.Error(), "reached") {
				t.Errorf("the condition %s: %v", condition, err)
			}
			f.evaluator.Fail = nil
		}
		if _, err := f.Update(t.Context(), f.ann, e, "a: 1", environments.ETag(e.ID, 2)); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("another revision: %v", err)
		}
		again := false
		f.evaluator.Checking = func() {
			if !again {
				again = true
				f.update(t, e, "a: 2")
			}
		}
		if _, err := f.Update(t.Context(), f.ann, e, "a: 3", first); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("a change during the check: %v", err)
		}
		if got := f.read(t, e, ""); got != "2 a: 2" {
			t.Errorf("the definition is %q", got)
		}
		if same := f.update(t, e, "a: 2"); same.LastNumber != 2 {
			t.Errorf("an equal definition makes revision %d", same.LastNumber)
		}
	})
}

// TestRightsEndDuringCheck takes the permission while a definition is being checked.
func TestRightsEndDuringCheck(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t), 0)
	e := f.create(t, "prod")
	set := func(p store.EnvironmentPermission) {
		must.OK(t, f.db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error { return tx.SetEnvironmentPermission("o", p) }))
	}
	set(store.WriteEnvironment)
	must.Get(f.Update(t.Context(), f.bob, e, "a: 1", ""))(t)
	f.evaluator.Checking = func() { set(store.ReadEnvironment) }
	if _, err := f.Update(t.Context(), f.bob, e, "a: 2", ""); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("a change without the permission: %v", err)
	}
}

// TestRetractions follows versions to the revisions that replace them.
func TestRetractions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.create(t, "prod")
		for i := 2; i <= 5; i++ {
			e = f.update(t, e, fmt.Sprintf("a: %d", i))
		}
		must.OK(t, f.SetVersionTag(t.Context(), f.ann, e, "stable", 3, true))
		retract := func(version string, replacement int64) string {
			err := f.Retract(t.Context(), f.ann, e, version, environments.Retraction{Replacement: replacement, Reason: "leaked"})
			return string(fault.KindOf(err))
		}
		for _, each := range []struct {
			version     string
			replacement int64
			want        fault.Kind
		}{
			{"latest", 0, fault.KindInvalid},
			{"5", 0, fault.KindInvalid},
			{"9", 0, fault.KindNotFound},
			{"unknown", 0, fault.KindNotFound},
			{"1", 0, fault.KindInvalid}, // no revision is earlier
			{"3", 3, fault.KindInvalid},
			{"3", 9, fault.KindInvalid},
			{"stable", 0, ""}, // revision 3, replaced by 2
			{"3", 0, fault.KindConflict},
			{"4", 3, fault.KindInvalid}, // retracted
			{"4", 0, ""},                // replaced by 2
			{"2", 5, ""},
		} {
			if got := retract(each.version, each.replacement); got != string(each.want) {
				t.Errorf("retracting %s for %d: %q, want %q", each.version, each.replacement, got, each.want)
			}
		}
		for version, want := range map[string]string{"": "5 a: 5", "latest": "5 a: 5", "1": "1 ", "2": "5 a: 5", "3": "5 a: 5", "4": "5 a: 5", "stable": "5 a: 5", "0": "not_found", "6": "not_found"} {
			if got := f.read(t, e, version); got != want && !(strings.HasSuffix(want, "found") && got == string(fault.KindNotFound)) {
				t.Errorf("version %q is %q, want %q", version, got, want)
			}
		}
		var got []string
		for _, r := range must.Get(f.History(t.Context(), e, 0, 3))(t) {
			got = append(got, fmt.Sprint(r.Number, " ", r.Replacement, " ", r.Reason, " ", r.Tags))
		}
		if want := "5 0  [latest stable]; 4 2 leaked []; 3 2 leaked []"; strings.Join(got, "; ") != want {
			t.Errorf("the history is %q, want %q", got, want)
		}
		if err := f.SetVersionTag(t.Context(), f.ann, e, "stable", 2, false); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("tagging a retracted revision: %v", err)
		}
	})
}

// TestVersionTags pages through names of revisions.
func TestVersionTags(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.update(t, f.create(t, "prod"), "a: 1")
		for _, name := range []string{"b", "Z", "a"} {
			must.OK(t, f.SetVersionTag(t.Context(), f.ann, e, name, 0, true))
		}
		must.OK(t, f.SetVersionTag(t.Context(), f.ann, e, "a", 1, false))
		for name, want := range map[string]fault.Kind{"latest": fault.KindInvalid, "tags": fault.KindInvalid, "1a": fault.KindInvalid, "": fault.KindInvalid, "x/y": fault.KindInvalid, "a": fault.KindConflict} {
			if err := f.SetVersionTag(t.Context(), f.ann, e, name, 0, true); fault.KindOf(err) != want {
				t.Errorf("adding the tag %q: %v", name, err)
			}
		}
		if err := f.SetVersionTag(t.Context(), f.ann, e, "new", 0, false); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("changing a missing tag: %v", err)
		}
		for size := 1; size <= 5; size++ {
			var got []string
			for after := ""; ; {
				page := must.Get(f.VersionTags(t.Context(), e, "", after, size))(t)
				for _, tag := range page {
					got = append(got, fmt.Sprint(tag.Name, "=", tag.Number))
					after = tag.Name
				}
				if len(page) < size {
					break
				}
			}
			if want := "latest=2 Z=2 a=1 b=2"; strings.Join(got, " ") != want {
				t.Errorf("pages of %d: %q, want %q", size, got, want)
			}
		}
		if list := must.Get(f.VersionTags(t.Context(), e, "1", "", 10))(t); len(list) != 1 || list[0].Name != "a" {
			t.Errorf("the tags of revision 1 are %v", list)
		}
		must.OK(t, f.RemoveVersionTag(t.Context(), f.ann, e, "a"))
		if got := f.read(t, e, "a"); got != string(fault.KindNotFound) {
			t.Errorf("a removed tag finds %q", got)
		}
	})
}

// TestClones checks that clones have their own key, and what else they get.
func TestClones(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.update(t, f.create(t, "prod"), "a: {fn::secret: one}\n- app/base\n")
		e = f.update(t, e, "a: {fn::secret: two}\n")
		e = f.update(t, e, "a: {fn::secret: three}\n")
		must.OK(t, f.SetVersionTag(t.Context(), f.ann, e, "stable", 2, true))
		must.Get(f.AddTag(t.Context(), f.ann, e, "team", "core"))(t)
		must.OK(t, f.Retract(t.Context(), f.ann, e, "3", environments.Retraction{}))
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			must.OK(t, tx.InsertTeam(store.Team{ID: "t", OrgID: "o", Name: "core"}))
			return tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: "t", EnvironmentID: e.ID, Permission: store.WriteEnvironment})
		}))
		describe := func(c environments.Clone) string {
			t.Helper()
			made := must.Get(f.Clone(t.Context(), f.bob, e, c))(t)
			made = must.Get(f.Find(t.Context(), f.bob, store.AdminEnvironment, "acme", made.Project, made.Name))(t)
			var parts []string
			for _, r := range must.Get(f.History(t.Context(), made, 0, 10))(t) {
				parts = append(parts, fmt.Sprintf("%d%v%d%s", r.Number, r.Tags, r.Replacement, r.CreatedBy))
			}
			found := must.Get(f.Revision(t.Context(), f.bob, store.OpenEnvironment, "acme", environments.Reference{Project: made.Project, Name: made.Name}))(t)
			original := must.Get(f.Revision(t.Context(), f.bob, store.OpenEnvironment, "acme", environments.Reference{Project: "app", Name: "prod"}))(t)
			original.Environment = made
			if _, err := f.Decrypt(t.Context(), f.bob, original); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("the ciphertext of the original in the clone: %v", err)
			}
			parts = append(parts, strings.TrimSpace(must.Get(f.Decrypt(t.Context(), f.bob, found))(t)))
			for _, tag := range must.Get(f.Tags(t.Context(), made))(t) {
				parts = append(parts, tag.Name+"="+tag.Value)
			}
			must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
				list, err := tx.TeamEnvironments("o", "t")
				for _, g := range list {
					if g.EnvironmentID == made.ID {
						parts = append(parts, g.Permission.String())
					}
				}
				return err
			}))
			return strings.Join(parts, " ")
		}
		for _, each := range []struct {
			clone environments.Clone
			want  string
		}{
			{environments.Clone{Name: "plain"}, "1[latest]0bob a: {fn::secret: three}"},
			{environments.Clone{Project: "other", Name: "prod", Version: 2, VersionTags: true, Tags: true}, "1[latest stable]0bob a: {fn::secret: one}\n- app/base team=core"},
			{environments.Clone{Name: "whole", History: true, Access: true, VersionTags: true}, "4[latest]0ann 3[]2ann 2[stable]0ann 1[]0ann a: {fn::secret: three} write"},
			{environments.Clone{Name: "earlier", History: true, Version: 2}, "2[latest]0ann 1[]0ann a: {fn::secret: one}\n- app/base"},
		} {
			if got := describe(each.clone); got != each.want {
				t.Errorf("the clone %+v is %q, want %q", each.clone, got, each.want)
			}
		}
		if _, err := f.Clone(t.Context(), f.ann, e, environments.Clone{Name: "retracted", History: true, Version: 3}); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("a clone up to a retracted revision: %v", err)
		}
		if _, err := f.Clone(t.Context(), f.ann, e, environments.Clone{Name: "future", History: true, Version: 9}); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("a clone up to a revision that does not exist: %v", err)
		}
		if _, err := f.Clone(t.Context(), f.ann, e, environments.Clone{Name: "plain"}); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("a clone with the name of another environment: %v", err)
		}
	})
}

// TestReferrers lists what refers to an environment, without stacks that the caller may not read.
func TestReferrers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		base := f.update(t, f.create(t, "base"), "a: 1")
		must.OK(t, f.SetVersionTag(t.Context(), f.ann, base, "old", 1, true))
		one, two := f.create(t, "one"), f.create(t, "two")
		f.update(t, one, "- app/base\n")
		f.update(t, f.update(t, two, "- app/base\n- app/base@2\n"), "- app/base@old\n- other/base\n")
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			for _, name := range []string{"dev", "hidden"} {
				st := store.Stack{ID: name, OrgID: "o", Project: "web", Name: name}
				if name == "dev" {
					st.CreatedBy = "bob"
				}
				must.OK(t, tx.InsertStack(st))
				for version := int64(1); version <= 2; version++ {
					must.OK(t, tx.SaveStackEnvironment(store.StackEnvironment{EnvironmentID: base.ID, StackID: name, StackVersion: version, Version: "latest"}))
				}
			}
			return nil
		}))
		must.OK(t, db.Write(t.Context(), scope.Organization("o"), func(tx *store.Tx) error {
			must.OK(t, tx.InsertTeam(store.Team{ID: "t", OrgID: "o", Name: "core"}))
			must.OK(t, tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: "t", EnvironmentID: two.ID, Permission: store.ReadEnvironment}))
			return tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: "t", EnvironmentID: base.ID, Permission: store.ReadEnvironment})
		}))
		robot := identity.Principal{Kind: identity.KindOrg, Org: f.acme, TeamID: "t", Team: "core", TokenName: "robot"}
		list := func(p identity.Principal, filter environments.ReferrerFilter) string {
			t.Helper()
			filter.Limit = 2
			var parts []string
			for {
				page, next, err := f.Referrers(t.Context(), p, base, filter)
				must.OK(t, err)
				for _, r := range page {
					parts = append(parts, fmt.Sprintf("%s/%s:%d@%s", r.Project, r.Name, r.Number, r.Version))
				}
				if filter.Offset = next; next == 0 {
					return strings.Join(parts, " ")
				}
			}
		}
		sorted := func(text string) string {
			words := strings.Fields(text)
			if len(words) > 1 && words[0] > words[1] && !strings.Contains(words[1], "web/") {
				words[0], words[1] = words[1], words[0] // in the order of random ids
			}
			return strings.Join(words, " ")
		}
		for _, each := range []struct {
			who    identity.Principal
			filter environments.ReferrerFilter
			want   string
		}{
			{f.ann, environments.ReferrerFilter{}, "app/one:2@latest web/dev:2@latest web/hidden:2@latest"},
			{f.bob, environments.ReferrerFilter{Newest: true}, "app/one:2@latest web/dev:2@latest"},
			{f.bob, environments.ReferrerFilter{Newest: true, AllRevisions: true}, "app/one:2@latest app/two:3@old web/dev:2@latest"},
			{f.bob, environments.ReferrerFilter{Version: "old"}, "app/two:3@old"},
			{robot, environments.ReferrerFilter{AllRevisions: true}, "app/two:3@old"},
		} {
			if got := sorted(list(each.who, each.filter)); got != each.want {
				t.Errorf("%s, %+v: %q, want %q", each.who.Name(), each.filter, got, each.want)
			}
		}
		counted, _, err := f.List(t.Context(), f.ann, "o", store.EnvironmentName{}, 1, true)
		if err != nil || len(counted) != 1 || counted[0].Referrers != (store.ReferrerCounts{Environments: 2, Stacks: 2}) {
			t.Errorf("counted %+v (%v)", counted, err)
		}
	})
}

// TestLimits exceeds limits of sizes and numbers.
func TestLimits(t *testing.T) {
	f := newFixture(t, storetest.SQLite(t), 200<<10)
	e := f.create(t, "prod")
	if _, err := f.Update(t.Context(), f.ann, e, strings.Repeat("#", environments.MaxDefinition+1), ""); fault.KindOf(err) != fault.KindTooLarge {
		t.Errorf("a large definition: %v", err)
	}
	f.update(t, e, strings.Repeat("#", 150<<10))
	if _, err := f.Update(t.Context(), f.ann, e, strings.Repeat("-", 150<<10), ""); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("a definition beyond the quota: %v", err)
	}
	must.OK(t, quota.New(f.db, storetest.Log(), 0).Measure(t.Context()))
	stored := must.Get(store.Read(t.Context(), f.db, func(tx *store.Tx) (store.Storage, error) { return tx.Storage("o") }))(t)
	if stored.Bytes() != 150<<10 {
		t.Errorf("the measurement finds %d bytes", stored.Bytes())
	}
	var many strings.Builder
	for i := range 101 {
		fmt.Fprintf(&many, "- app/e%d\n", i)
	}
	if _, err := f.Update(t.Context(), f.ann, e, many.String(), ""); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("many imports: %v", err)
	}
	if _, err := f.Update(t.Context(), f.ann, e, "BROKEN", ""); err == nil || !strings.Contains(err.Error(), "unknown word BROKEN") {
		t.Errorf("a definition with errors: %v", err)
	}
	for _, names := range [][2]string{{"yaml", "x"}, {"restore", "x"}, {"", "x"}, {"app", ""}, {"app", "a b"}, {"app", ".."}, {"app", strings.Repeat("x", 101)}} {
		if _, err := f.Create(t.Context(), f.ann, f.acme, names[0], names[1]); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("an environment %q: %v", names, err)
		}
	}
}

// TestWithoutEvaluator keeps definitions readable, but changes none.
func TestWithoutEvaluator(t *testing.T) {
	db := storetest.SQLite(t)
	f := newFixture(t, db, 0)
	e := f.update(t, f.create(t, "prod"), "a: 1")
	ring := must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32)))(t)
	f.Service = environments.New(db, environments.Options{Log: storetest.Log(), Secrets: ring})
	if got := f.read(t, e, ""); got != "2 a: 1" {
		t.Errorf("the definition is %q", got)
	}
	if _, err := f.Update(t.Context(), f.ann, e, "a: 2", ""); fault.KindOf(err) != fault.KindUnavailable {
		t.Errorf("changing a definition: %v", err)
	}
}

// TestProtection deletes environments.
func TestProtection(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		e := f.update(t, f.create(t, "prod"), "a: 1\n- app/base\n")
		must.Get(f.AddTag(t.Context(), f.ann, e, "team", "core"))(t)
		must.OK(t, f.SetVersionTag(t.Context(), f.ann, e, "stable", 0, true))
		yes, no := true, false
		must.OK(t, f.SetSettings(t.Context(), f.ann, e, environments.Settings{Protected: &yes}))
		if err := f.Delete(t.Context(), f.ann, e); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("deleting a protected environment: %v", err)
		}
		must.OK(t, f.SetSettings(t.Context(), f.ann, e, environments.Settings{Protected: &no}))
		must.OK(t, f.Delete(t.Context(), f.ann, e))
		again := f.create(t, "prod")
		if _, err := f.Update(t.Context(), f.ann, e, "a: 2", ""); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("changing a deleted environment whose name another one has: %v", err)
		}
		if got := f.read(t, again, ""); got != "1 " {
			t.Errorf("the new environment has the definition %q", got)
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			for _, table := range []string{"environment_tags", "environment_revision_tags", "environment_imports"} {
				if n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+table); err != nil || n != 0 {
					t.Errorf("%s has %d rows (%v)", table, n, err)
				}
			}
			return nil
		}))
	})
}

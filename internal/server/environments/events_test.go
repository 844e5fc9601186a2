package environments_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// hook adds a webhook of an environment, or of the organization if e is zero.
func (f *fixture) hook(t *testing.T, name string, e store.Environment, events ...string) {
	t.Helper()
	must.OK(t, f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertWebhook(store.Webhook{
			ID: name, OrgID: "o", OwnerID: e.ID, OfEnvironment: e.ID != "", Name: name, Format: "raw", Active: true, Filters: events,
		})
	}))
}

// received returns the deliveries of a webhook since the last call, as "kind project/environment action …".
func (f *fixture) received(t *testing.T, hook string, seen map[string]bool) []string {
	t.Helper()
	list := must.Get(store.Read(t.Context(), f.db, func(tx *store.Tx) ([]store.WebhookDelivery, error) { return tx.Deliveries(hook, 1000) }))(t)
	var out []string
	for _, d := range list {
		if seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		var p struct {
			User                                          struct{ GithubLogin string }
			ProjectName, EnvironmentName, Action, TagName string
			Revision                                      int64
			AffectedRevisions                             []int64
			Imported                                      struct {
				ProjectName, EnvironmentName string
				Revision                     int64
			} `json:"importedEnvironmentReference"`
			StackName *string
		}
		must.OK(t, json.Unmarshal([]byte(d.Payload), &p))
		if p.User.GithubLogin != "ann" || p.StackName != nil {
			t.Errorf("the payload is %s", d.Payload)
		}
		text := fmt.Sprintf("%s %s/%s %s", d.Kind, p.ProjectName, p.EnvironmentName, p.Action)
		if p.TagName != "" {
			text += " " + p.TagName
		}
		if p.Revision != 0 {
			text += fmt.Sprint(" ", p.Revision)
		}
		if p.Imported.EnvironmentName != "" {
			text += fmt.Sprintf("%v of %s/%s %d", p.AffectedRevisions, p.Imported.ProjectName, p.Imported.EnvironmentName, p.Imported.Revision)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// TestEvents changes environments, and checks which webhooks receive what.
func TestEvents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		ctx := t.Context()
		f.hook(t, "org", store.Environment{})
		base, other, app := f.create(t, "base"), f.create(t, "other"), f.create(t, "app")
		f.hook(t, "base", base)
		f.hook(t, "app", app, "imported_environment_changed")
		f.hook(t, "unrelated", other)
		seen := map[string]bool{}
		for _, step := range []struct {
			what      string
			do        func() error
			org, base string // what the webhooks receive, apart from imports
			app       string
		}{
			{what: "nothing", do: func() error { return nil }, org: "environment app/app created; environment app/base created; environment app/other created"},
			{what: "a change", do: func() error { base = f.update(t, base, "a: 1"); return nil }, org: "environment_revision app/base created 2", base: "environment_revision app/base created 2"},
			{what: "a change to the same", do: func() error { base = f.update(t, base, "a: 1"); return nil }},
			{
				what: "a new version tag", do: func() error { return f.SetVersionTag(ctx, f.ann, base, "stable", 0, true) },
				org: "environment_revision_tag app/base created stable 2", base: "environment_revision_tag app/base created stable 2",
			},
			{what: "an import", do: func() error { app = f.update(t, app, "imports:\n- app/base@stable"); return nil }, org: "environment_revision app/app created 2"},
			{
				what: "a change that no import names", do: func() error { base = f.update(t, base, "a: 2"); return nil },
				org: "environment_revision app/base created 3", base: "environment_revision app/base created 3",
			},
			{
				what: "a moved version tag", do: func() error { return f.SetVersionTag(ctx, f.ann, base, "stable", 3, false) },
				org:  "environment_revision_tag app/base updated stable 3; imported_environment_changed app/app [2] of app/base 3",
				base: "environment_revision_tag app/base updated stable 3", app: "imported_environment_changed app/app [2] of app/base 3",
			},
			{
				what: "a version tag that stays", do: func() error { return f.SetVersionTag(ctx, f.ann, base, "stable", 3, false) },
				org: "environment_revision_tag app/base updated stable 3", base: "environment_revision_tag app/base updated stable 3",
			},
			{
				what: "another change", do: func() error { base = f.update(t, base, "a: 3"); return nil },
				org: "environment_revision app/base created 4", base: "environment_revision app/base created 4",
			},
			{
				what: "a retraction", do: func() error { return f.Retract(ctx, f.ann, base, "3", environments.Retraction{}) },
				org:  "environment_revision app/base retracted 3; imported_environment_changed app/app [2] of app/base 2",
				base: "environment_revision app/base retracted 3", app: "imported_environment_changed app/app [2] of app/base 2",
			},
			{
				what: "a removed version tag", do: func() error { return f.RemoveVersionTag(ctx, f.ann, base, "stable") },
				org: "environment_revision_tag app/base deleted stable 2", base: "environment_revision_tag app/base deleted stable 2",
			},
			{
				what: "a tag", do: func() error { _, err := f.AddTag(ctx, f.ann, base, "team", "core"); return err },
				org: "environment_tag app/base created team", base: "environment_tag app/base created team",
			},
			{
				what: "another value", do: func() error {
					_, err := f.ChangeTag(ctx, f.ann, base, "team", environments.TagChange{Current: "core", Value: "net"})
					return err
				},
				org: "environment_tag app/base updated team", base: "environment_tag app/base updated team",
			},
			{
				what: "another name", do: func() error {
					_, err := f.ChangeTag(ctx, f.ann, base, "team", environments.TagChange{Current: "net", NewName: "group"})
					return err
				},
				org:  "environment_tag app/base created group; environment_tag app/base deleted team",
				base: "environment_tag app/base created group; environment_tag app/base deleted team",
			},
			{
				what: "a removed tag", do: func() error { return f.RemoveTag(ctx, f.ann, base, "group") },
				org: "environment_tag app/base deleted group", base: "environment_tag app/base deleted group",
			},
			{
				what: "a clone", do: func() error {
					_, err := f.Clone(ctx, f.ann, base, environments.Clone{Name: "copy"})
					return err
				},
				org: "environment app/copy created",
			},
			{what: "a deletion", do: func() error { return f.Delete(ctx, f.ann, base) }, org: "environment app/base deleted"},
		} {
			must.OK(t, step.do())
			for hook, want := range map[string]string{"org": step.org, "base": step.base, "app": step.app, "unrelated": ""} {
				if got := strings.Join(f.received(t, hook, seen), "; "); got != want {
					t.Errorf("%s: webhook %s received %q, want %q", step.what, hook, got, want)
				}
			}
		}
	})
}

// TestImportersOfImporters changes an environment that others import through others, also in a circle.
func TestImportersOfImporters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixture(t, db, 0)
		a, b, c, d := f.create(t, "a"), f.create(t, "b"), f.create(t, "c"), f.create(t, "d")
		for _, step := range []struct {
			e    store.Environment
			text string
		}{{b, "imports:\n- app/a"}, {c, "imports:\n- app/b@2\n- app/d"}, {d, "imports:\n- app/c"}} {
			f.update(t, step.e, step.text)
		}
		b.LastNumber = 2
		b = f.update(t, b, "# without")
		f.hook(t, "org", store.Environment{}, "imported_environment_changed")
		f.update(t, a, "x: 1")
		want := []string{
			"imported_environment_changed app/b [2] of app/a 2", "imported_environment_changed app/c [2] of app/a 2", "imported_environment_changed app/d [2] of app/a 2",
		}
		if got := f.received(t, "org", map[string]bool{}); !slices.Equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
		b = f.update(t, b, "# again") // revision 3 is imported nowhere
		if got := f.received(t, "org", map[string]bool{}); len(got) != len(want) {
			t.Errorf("a revision that no environment imports is an event: %q", got)
		}
		must.OK(t, f.Retract(t.Context(), f.ann, b, "2", environments.Retraction{Replacement: 3}))
		before := len(f.received(t, "org", map[string]bool{}))
		f.update(t, a, "x: 2") // which only a retracted revision imports
		if got := f.received(t, "org", map[string]bool{}); len(got) != before {
			t.Errorf("an import of a retracted revision is an event: %q", got)
		}
	})
}

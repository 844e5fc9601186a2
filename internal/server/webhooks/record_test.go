package webhooks_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func write(t *testing.T, db *store.DB, fn func(tx *store.Tx) error) {
	t.Helper()
	if err := db.Write(t.Context(), scope.Server(), fn); err != nil {
		t.Fatal(err)
	}
}

// fixture adds an organization "o", its user "u" and its stacks "s" and "s2".
func fixture(t *testing.T, db *store.DB) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "acme", DisplayName: "Acme", CreatedAt: time.Now()}); err != nil {
			return err
		}
		if err := tx.InsertUser(store.User{ID: "u", Login: "ann", Name: "Ann", CreatedAt: time.Now()}); err != nil {
			return err
		}
		for _, id := range []string{"s", "s2"} {
			if err := tx.InsertStack(store.Stack{ID: id, OrgID: "o", Project: "p", Name: id, CreatedAt: time.Now()}); err != nil {
				return err
			}
		}
		return nil
	})
}

func event(name webhooks.Name) webhooks.Event {
	return webhooks.Event{Name: name, OrgID: "o", StackID: "s", Describe: func(org string) (webhooks.Description, error) {
		return webhooks.Description{Project: "p", Stack: "s", UserID: "u", Fields: map[string]any{"of": org}}, nil
	}}
}

// TestRecord checks which webhooks receive an event.
func TestRecord(t *testing.T) {
	hooks := []store.Webhook{
		{ID: "all", Active: true},
		{ID: "off"},
		{ID: "stack", OwnerID: "s", Active: true},
		{ID: "otherstack", OwnerID: "s2", Active: true},
		{ID: "group", Active: true, Groups: []string{"stacks"}},
		{ID: "othergroup", Active: true, Groups: []string{"deployments"}},
		{ID: "filter", OwnerID: "s", Active: true, Filters: []string{"update_failed"}},
		{ID: "mixed", OwnerID: "s", Active: true, Groups: []string{"deployments"}, Filters: []string{"update_succeeded"}},
	}
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		write(t, db, func(tx *store.Tx) error {
			for _, h := range hooks {
				h.OrgID, h.Name, h.Format = "o", h.ID, webhooks.FormatRaw
				if err := tx.InsertWebhook(h); err != nil {
					return err
				}
			}
			return nil
		})
		seen := map[string]bool{} // ids of deliveries
		for _, test := range []struct {
			name webhooks.Name
			want []string
		}{
			{"update_failed", []string{"all", "filter", "group", "stack"}},
			{"update_succeeded", []string{"all", "group", "mixed", "stack"}},
			{"deployment_queued", []string{"all", "mixed", "othergroup", "stack"}},
			{"stack_deleted", []string{"all", "group"}},
			{"rename_succeeded", nil},
		} {
			write(t, db, func(tx *store.Tx) error { return webhooks.Record(tx, event(test.name)) })
			var got []string
			for _, h := range hooks {
				for _, d := range deliveries(t, db, h.ID) {
					if seen[d.ID] {
						continue
					}
					seen[d.ID] = true
					got = append(got, d.HookID)
					var payload map[string]any
					if err := json.Unmarshal([]byte(d.Payload), &payload); err != nil {
						t.Fatal(err)
					}
					if want := any(map[string]any{"name": "Ann", "githubLogin": "ann", "avatarUrl": ""}); !cmp.Equal(payload["user"], want) || payload["of"] != "acme" {
						t.Errorf("the payload is %s", d.Payload)
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("receivers of %s (-want +got):\n%s", test.name, diff)
			}
		}
	})
}

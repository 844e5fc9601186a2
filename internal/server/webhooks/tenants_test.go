package webhooks_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

// TestManyWebhooksHideNoOther checks that an organization's webhooks are sent although another
// organization has more due webhooks, with slow receivers, than a server reads at once.
func TestManyWebhooksHideNoOther(t *testing.T) {
	db := storetest.SQLite(t)
	fixture(t, db)
	release := make(chan struct{})
	n := &network{receivers: map[string]func() (int, error){"other": ok}}
	var names []string
	for i := range 1100 {
		names = append(names, fmt.Sprintf("slow%d", i))
		n.receivers[names[i]] = func() (int, error) { <-release; return 200, nil }
	}
	addHooks(t, db, names...)
	recordEvents(t, db, 1)
	write(t, db, func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o2", Name: "rival", CreatedAt: time.Now()}); err != nil {
			return err
		}
		if err := tx.InsertStack(store.Stack{ID: "theirs", OrgID: "o2", Project: "p", Name: "theirs"}); err != nil {
			return err
		}
		if err := tx.InsertWebhook(store.Webhook{ID: "other", OrgID: "o2", Name: "other", URL: "other", Format: webhooks.FormatRaw, Active: true}); err != nil {
			return err
		}
		if err := tx.SaveWebhookSender(store.WebhookSender{HookID: "other", NotBefore: tx.Now()}); err != nil { // it has sent before
			return err
		}
		e := event("update_failed")
		e.OrgID, e.StackID = "o2", "theirs"
		return webhooks.Record(tx, e)
	})
	run(t, newService(t, db, n))
	t.Cleanup(func() { close(release) }) // before Run ends
	eventually(t, "the delivery of another organization", func() bool { got, _ := n.taken("other"); return got == 1 })
}

// TestPingsDelayNoOther has the users of one organization wait for as many deliveries as they can.
func TestPingsDelayNoOther(t *testing.T) {
	db := storetest.SQLite(t)
	fixture(t, db)
	release := make(chan struct{})
	var held atomic.Int64
	n := &network{receivers: map[string]func() (int, error){"slow": func() (int, error) { held.Add(1); <-release; return 200, nil }, "other": ok}}
	addHooks(t, db, "slow")
	write(t, db, func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o2", Name: "rival", CreatedAt: time.Now()}); err != nil {
			return err
		}
		return tx.InsertWebhook(store.Webhook{ID: "other", OrgID: "o2", Name: "other", URL: "other", Format: webhooks.FormatRaw, Active: true})
	})
	s := newService(t, db, n)
	ping := func(org, name string) error {
		_, err := s.Ping(t.Context(), webhooks.Owner{Org: store.Organization{ID: org}}, name)
		return err
	}
	var pings sync.WaitGroup
	var refused atomic.Int64
	for range 20 {
		pings.Go(func() {
			if ping("o", "slow") != nil {
				refused.Add(1)
			}
		})
	}
	eventually(t, "the limit of pings", func() bool { return held.Load()+refused.Load() == 20 })
	if err := ping("o2", "other"); err != nil {
		t.Errorf("a ping of another organization: %v", err)
	}
	close(release)
	pings.Wait()
	if err := ping("o", "slow"); err != nil {
		t.Errorf("a later ping: %v", err)
	}
}

// TestManyDeliveries checks that a receiver with long responses cannot fill the database.
func TestManyDeliveries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		addHooks(t, db, "h")
		at := time.Now().Add(-time.Hour)
		write(t, db, func(tx *store.Tx) error {
			for i := range 1005 {
				id := fmt.Sprintf("d%04d", i)
				if err := tx.InsertWebhookEvent(store.WebhookEvent{ID: "e" + id, OrgID: "o", Kind: "ping", Payload: "{}", CreatedAt: at}); err != nil {
					return err
				}
				d := store.WebhookDelivery{ID: id, HookID: "h", EventID: "e" + id, Status: store.DeliverySucceeded, CreatedAt: at.Add(time.Duration(i) * time.Second)}
				if i == 1 {
					d.DeploymentID = "started"
				}
				if err := tx.InsertDelivery(d); err != nil {
					return err
				}
			}
			return nil
		})
		s := newService(t, db, &network{receivers: map[string]func() (int, error){"h": ok}})
		if _, err := s.Ping(t.Context(), webhooks.Owner{Org: store.Organization{ID: "o"}}, "h"); err != nil {
			t.Fatal(err)
		}
		write(t, db, func(tx *store.Tx) error {
			for i, want := range []bool{false, true, false, false, false, false, true} {
				_, errDelivery := tx.Delivery("h", fmt.Sprintf("d%04d", i))
				_, errEvent := tx.WebhookEvent(fmt.Sprintf("ed%04d", i))
				if (errDelivery == nil) != want || (errEvent == nil) != want {
					t.Errorf("delivery %d: %v, its event: %v, want them kept: %t", i, errDelivery, errEvent, want)
				}
			}
			return nil
		})
	})
}

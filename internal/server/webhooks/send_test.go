package webhooks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/retry"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

// network is a network whose receivers are functions by URL. It counts the deliveries by id.
type network struct {
	mu        sync.Mutex
	receivers map[string]func() (int, error)
	got       map[string]int            // attempts by delivery
	accepted  map[string]map[string]int // accepted attempts by URL and delivery
	forbidden error                     // result of CheckReceiver
}

func (n *network) CheckReceiver(string) error { return n.forbidden }

func (n *network) Post(_ context.Context, address string, header map[string]string, _ []byte) (outbound.Answer, error) {
	id := header["Pulumi-Webhook-ID"]
	n.mu.Lock()
	if n.got == nil {
		n.got, n.accepted = map[string]int{}, map[string]map[string]int{}
	}
	n.got[id]++
	receive := n.receivers[address]
	n.mu.Unlock()
	status, err := receive()
	if err == nil && status < 300 {
		n.mu.Lock()
		if n.accepted[address] == nil {
			n.accepted[address] = map[string]int{}
		}
		n.accepted[address][id]++
		n.mu.Unlock()
	}
	return outbound.Answer{Status: status}, err
}

// taken returns the number of deliveries that a receiver accepted, and those accepted repeatedly.
func (n *network) taken(address string) (deliveries int, repeated []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, times := range n.accepted[address] {
		if times > 1 {
			repeated = append(repeated, id)
		}
	}
	return len(n.accepted[address]), repeated
}

func ok() (int, error) { return 200, nil }

func newService(t *testing.T, db *store.DB, n *network) *webhooks.Service {
	t.Helper()
	ring, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	fast := retry.Policy{First: time.Millisecond, Max: time.Millisecond}
	return webhooks.New(db, webhooks.Options{Log: storetest.Log(), Secrets: ring, Receivers: n, Again: fast, Rest: fast})
}

func run(t *testing.T, s *webhooks.Service) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func addHooks(t *testing.T, db *store.DB, urls ...string) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, u := range urls {
			if err := tx.InsertWebhook(store.Webhook{ID: u, OrgID: "o", Name: u, DisplayName: u, URL: u, Format: webhooks.FormatRaw, Active: true}); err != nil {
				return err
			}
		}
		return nil
	})
}

func recordEvents(t *testing.T, db *store.DB, count int) {
	t.Helper()
	for done := 0; done < count; done += 500 {
		write(t, db, func(tx *store.Tx) error {
			for range min(500, count-done) {
				if err := webhooks.Record(tx, event("update_succeeded")); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func deliveries(t *testing.T, db *store.DB, hook string) (out []store.WebhookDelivery) {
	t.Helper()
	err := db.Read(t.Context(), func(tx *store.Tx) (err error) {
		out, err = tx.Deliveries(hook, 100)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) || retry.Sleep(t.Context(), 5*time.Millisecond) != nil {
			t.Fatalf("%s did not happen within a minute", what)
		}
	}
}

// TestAttempts checks that a delivery is repeated until it succeeds, and a limited number of times.
func TestAttempts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		calls := 0
		n := &network{receivers: map[string]func() (int, error){
			"third": func() (int, error) {
				if calls++; calls < 3 {
					return 503, nil
				}
				return 204, nil
			},
			"never": func() (int, error) { return 0, errors.New("never could not be reached: connection refused") },
		}}
		addHooks(t, db, "third", "never")
		recordEvents(t, db, 1)
		run(t, newService(t, db, n))
		eventually(t, "the end of the deliveries", func() bool {
			return deliveries(t, db, "third")[0].Status != store.DeliveryPending && deliveries(t, db, "never")[0].Status != store.DeliveryPending
		})
		if d := deliveries(t, db, "third")[0]; d.Status != store.DeliverySucceeded || d.Attempts != 3 || d.ResponseCode != 204 || d.SentAt.IsZero() {
			t.Errorf("the delivery that succeeded at last is %+v", d)
		}
		if d := deliveries(t, db, "never")[0]; d.Status != store.DeliveryFailed || d.Attempts != 9 || d.ResponseBody != "never could not be reached: connection refused" {
			t.Errorf("the delivery that failed is %+v", d)
		}
	})
}

// TestSlowReceiverDelaysNoOther checks that other webhooks receive their events while receivers
// hold their requests, of which an organization has more than it may have in progress.
func TestSlowReceiverDelaysNoOther(t *testing.T) {
	db := storetest.SQLite(t)
	fixture(t, db)
	release := make(chan struct{})
	held := func() (int, error) { <-release; return 200, nil }
	n := &network{receivers: map[string]func() (int, error){"quick": ok, "other": ok}}
	for i := range 7 { // one less than an organization may have in progress
		slow := fmt.Sprintf("slow%d", i)
		n.receivers[slow] = held
		addHooks(t, db, slow)
	}
	addHooks(t, db, "quick")
	write(t, db, func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "o2", Name: "rival", CreatedAt: time.Now()}); err != nil {
			return err
		}
		if err := tx.InsertStack(store.Stack{ID: "theirs", OrgID: "o2", Project: "p", Name: "theirs"}); err != nil {
			return err
		}
		return tx.InsertWebhook(store.Webhook{ID: "other", OrgID: "o2", Name: "other", URL: "other", Format: webhooks.FormatRaw, Active: true})
	})
	run(t, newService(t, db, n))
	finish := sync.OnceFunc(func() { close(release) })
	t.Cleanup(finish) // before Run ends
	recordEvents(t, db, 30)
	eventually(t, "the delivery to a quick receiver", func() bool { got, _ := n.taken("quick"); return got == 30 })
	write(t, db, func(tx *store.Tx) error {
		e := event("update_failed")
		e.OrgID, e.StackID = "o2", "theirs"
		return webhooks.Record(tx, e)
	})
	eventually(t, "the delivery of another organization", func() bool { got, _ := n.taken("other"); return got == 1 })
	n.mu.Lock()
	attempts := len(n.got)
	n.mu.Unlock()
	if attempts != 30+7+1 {
		t.Errorf("%d deliveries were attempted, want one for each slow receiver", attempts)
	}
	finish()
	eventually(t, "the delivery to a slow receiver", func() bool { got, _ := n.taken("slow0"); return got == 30 })
}

// TestReplicasSendOnce lets two servers send the same deliveries.
func TestReplicasSendOnce(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	fixture(t, first)
	n := &network{receivers: map[string]func() (int, error){"a": ok, "b": ok, "c": ok}}
	addHooks(t, first, "a", "b", "c")
	recordEvents(t, first, 60)
	run(t, newService(t, first, n))
	run(t, newService(t, second, n))
	recordEvents(t, second, 60)
	eventually(t, "the delivery of all events", func() bool {
		for _, hook := range []string{"a", "b", "c"} {
			if got, _ := n.taken(hook); got < 120 {
				return false
			}
		}
		return true
	})
	for _, hook := range []string{"a", "b", "c"} {
		if got, repeated := n.taken(hook); got != 120 || len(repeated) > 0 {
			t.Errorf("%s accepted %d deliveries, these repeatedly: %v; want 120 once", hook, got, repeated)
		}
		eventually(t, "the record of all deliveries", func() bool {
			return !slices.ContainsFunc(deliveries(t, first, hook), func(d store.WebhookDelivery) bool { return d.Status != store.DeliverySucceeded || d.Attempts != 1 })
		})
	}
}

// TestKilledServer checks that another server sends the deliveries of a server that was killed, but
// only after the lease has ended, and that it does not repeat the last attempt of a delivery.
func TestKilledServer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		n := &network{receivers: map[string]func() (int, error){"lapsed": ok, "held": ok, "last": ok}}
		addHooks(t, db, "lapsed", "held", "last")
		recordEvents(t, db, 1)
		write(t, db, func(tx *store.Tx) error {
			for hook, until := range map[string]time.Duration{"lapsed": -time.Second, "held": time.Hour, "last": -time.Second} {
				list, err := tx.Deliveries(hook, 1)
				if err != nil {
					return err
				}
				d := list[0]
				d.Attempts, d.DueAt = 1, tx.Now().Add(until)
				if hook == "last" {
					d.Attempts = 9
				}
				if err := tx.SaveDelivery(d); err != nil {
					return err
				}
				if err := tx.SaveWebhookSender(store.WebhookSender{HookID: hook, Lease: "of a killed server", NotBefore: tx.Now().Add(until)}); err != nil {
					return err
				}
			}
			return nil
		})
		run(t, newService(t, db, n))
		eventually(t, "the end of the deliveries", func() bool {
			return deliveries(t, db, "lapsed")[0].Status != store.DeliveryPending && deliveries(t, db, "last")[0].Status != store.DeliveryPending
		})
		if d := deliveries(t, db, "lapsed")[0]; d.Status != store.DeliverySucceeded || d.Attempts != 2 {
			t.Errorf("the delivery of a killed server is %s after %d attempts, want succeeded after 2", d.Status, d.Attempts)
		}
		if d := deliveries(t, db, "last")[0]; d.Status != store.DeliveryFailed || !strings.Contains(d.ResponseBody, "stopped during the last attempt") {
			t.Errorf("the delivery whose last attempt was interrupted is %+v", d)
		}
		if d := deliveries(t, db, "held")[0]; d.Status != store.DeliveryPending || d.Attempts != 1 {
			t.Errorf("the delivery whose lease has not ended is %s after %d attempts", d.Status, d.Attempts)
		}
	})
}

// TestBurst records many events for a receiver that does not work, and checks that the backlog
// needs no memory and delays no other write.
func TestBurst(t *testing.T) {
	db := storetest.SQLite(t)
	fixture(t, db)
	addHooks(t, db, "dead")
	n := &network{receivers: map[string]func() (int, error){"dead": func() (int, error) { return 0, errors.New("refused") }}}
	run(t, newService(t, db, n))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	recordEvents(t, db, 2000)
	var took []time.Duration
	for range 200 {
		began := time.Now()
		write(t, db, func(tx *store.Tx) error { return tx.SetStackTag("s", "k", "v") })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	grown := int64(heap()) - int64(before)
	t.Logf("heap grew by %d KiB; writes took p50 %v, p95 %v", grown>>10, took[100], took[190])
	if grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if took[190] > 5*time.Second {
		t.Errorf("writes took p50 %v, p95 %v", took[100], took[190])
	}
}

// TestSweep checks that old deliveries end and are removed, and that the webhooks of a deleted stack
// are removed once they have nothing to send.
func TestSweep(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		fixture(t, db)
		s := newService(t, db, &network{})
		write(t, db, func(tx *store.Tx) error {
			for _, h := range []store.Webhook{{ID: "org"}, {ID: "idle", OwnerID: "gone"}, {ID: "sending", OwnerID: "gone2"}, {ID: "kept", OwnerID: "s"}} {
				h.OrgID, h.Name, h.Active = "o", h.ID, true
				if err := tx.InsertWebhook(h); err != nil {
					return err
				}
			}
			add := func(id, hook string, age time.Duration, status store.DeliveryStatus) error {
				at := tx.Now().Add(-age)
				if err := tx.InsertWebhookEvent(store.WebhookEvent{ID: "e" + id, OrgID: "o", Kind: "ping", Payload: "{}", CreatedAt: at}); err != nil {
					return err
				}
				return tx.InsertDelivery(store.WebhookDelivery{ID: id, HookID: hook, EventID: "e" + id, Status: status, CreatedAt: at, DueAt: at})
			}
			return errors.Join(
				add("fresh", "org", time.Minute, store.DeliveryPending), add("stale", "org", 25*time.Hour, store.DeliveryPending),
				add("old", "org", 31*24*time.Hour, store.DeliverySucceeded), add("waits", "sending", time.Minute, store.DeliveryPending),
			)
		})
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]store.DeliveryStatus{}
		for _, d := range deliveries(t, db, "org") {
			got[d.ID] = d.Status
		}
		if len(got) != 2 || got["fresh"] != store.DeliveryPending || got["stale"] != store.DeliveryFailed {
			t.Errorf("after a sweep, the deliveries are %v", got)
		}
		write(t, db, func(tx *store.Tx) error {
			for id, want := range map[string]bool{"org": true, "idle": false, "sending": true, "kept": true} {
				if _, err := tx.Webhook(id); errors.Is(err, store.ErrNotFound) == want {
					t.Errorf("webhook %s: %v, want it kept: %t", id, err, want)
				}
			}
			if _, err := tx.WebhookEvent("eold"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the old event: %v, want that it is removed", err)
			}
			return nil
		})
	})
}

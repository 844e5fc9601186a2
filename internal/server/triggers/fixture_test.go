package triggers_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// site is an installation with one organization, in which schedules fire when a test calls Sweep.
type site struct {
	t           testing.TB
	db          *store.DB
	clock       *storetest.Clock // nil with PostgreSQL
	ids         *identity.Service
	stacks      *stacks.Service
	deployments *deployments.Service
	triggers    *triggers.Service
	user        identity.Principal
	org         store.Organization
}

// newSite returns a site whose time the test controls.
func newSite(t testing.TB) *site {
	t.Helper()
	clock := &storetest.Clock{}
	s := newSiteOn(t, storetest.SQLiteAt(t, clock))
	s.clock = clock
	return s
}

func newSiteOn(t testing.TB, db *store.DB) *site {
	t.Helper()
	ctx := t.Context()
	s := &site{t: t, db: db, ids: identity.New(db, storetest.Log())}
	var token string
	s.must(s.ids.Bootstrap(ctx, "acme", func(text string) error { token = text; return nil }))
	var err error
	s.user, err = s.ids.Authenticate(ctx, token)
	s.must(err)
	s.org, err = s.ids.Organization(ctx, s.user, "acme")
	s.must(err)
	secrets, err := keyring.Open(ctx, db, bytes.Repeat([]byte{7}, 32))
	s.must(err)
	s.stacks = stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
	s.deployments = deployments.New(db, deployments.Options{
		Log: storetest.Log(), Secrets: secrets, Updates: s.stacks, Pools: pools.New(db, storetest.Log()), ExternalURL: "http://server.test",
	})
	s.triggers = s.replica(db)
	return s
}

// replica returns a service of another server on the site's database.
func (s *site) replica(db *store.DB) *triggers.Service {
	return triggers.New(db, s.deployments, storetest.Log())
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// stack creates a stack with deployment settings.
func (s *site) stack(name string) store.Stack {
	s.t.Helper()
	st, err := s.stacks.Create(s.t.Context(), s.user, stacks.NewStack{Org: s.org, Project: "proj", Name: name})
	s.must(err)
	_, err = s.deployments.ReplaceSettings(s.t.Context(), s.user, st, []byte(`{}`), "api")
	s.must(err)
	return st
}

const update = `{"operation":"update"}`

// asked parses the request of a client.
func asked(t testing.TB, body string) *workflow.Request {
	t.Helper()
	r, err := deployments.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func (s *site) cron(st store.Stack, expression string) string {
	s.t.Helper()
	return s.create(st, triggers.Spec{Kind: store.CustomSchedule, Cron: expression, Request: asked(s.t, update)})
}

func (s *site) create(st store.Stack, spec triggers.Spec) string {
	s.t.Helper()
	c, err := s.triggers.Create(s.t.Context(), s.user, st, spec)
	s.must(err)
	return c.ID
}

// sweep lets time pass, and fires the schedules that are due then.
func (s *site) sweep(d time.Duration) {
	s.t.Helper()
	s.clock.Pass(d)
	s.must(s.triggers.Sweep(s.t.Context()))
}

// events returns the results of a schedule, newest first.
func (s *site) events(st store.Stack, id string) []store.ScheduleEvent {
	s.t.Helper()
	list, err := s.triggers.History(s.t.Context(), st, id)
	s.must(err)
	return list
}

// expect checks the results of a schedule, newest first.
func (s *site) expect(st store.Stack, id string, want ...store.ScheduleResult) {
	s.t.Helper()
	got := s.events(st, id)
	for i, e := range got {
		if i >= len(want) || e.Result != want[i] {
			s.t.Fatalf("results = %+v, want %v", got, want)
		}
	}
	if len(got) != len(want) {
		s.t.Fatalf("results = %+v, want %v", got, want)
	}
}

// deployed returns the number of deployments of a stack.
func (s *site) deployed(st store.Stack) int64 {
	s.t.Helper()
	_, n, err := s.deployments.List(s.t.Context(), deployments.Filter{OrgID: st.OrgID, StackID: st.ID, Page: 1, PageSize: 10})
	s.must(err)
	return n
}

// drain ends the queued deployments of a stack.
func (s *site) drain(st store.Stack) {
	s.t.Helper()
	s.must(s.db.Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
		jobs, err := tx.QueuedJobsOfStack(st.ID)
		for _, j := range jobs {
			j.Status, j.EndedAt = workflow.StatusSucceeded, tx.Now()
			if err := tx.SaveJob(j); err != nil {
				return err
			}
		}
		return err
	}))
}

// schedule returns a schedule.
func (s *site) schedule(st store.Stack, id string) store.Schedule {
	s.t.Helper()
	c, err := s.triggers.Get(s.t.Context(), st, id)
	s.must(err)
	return c
}

package recovery_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// queues records what the recovery does with deployments. It fails once at the call with a number.
type queues struct {
	paused    map[string]bool
	cancelled []string
	failAt    int
}

func (q *queues) fails() error {
	if q.failAt--; q.failAt == 0 {
		return errors.New("the server was killed")
	}
	return nil
}

func (q *queues) PauseOrg(_ context.Context, p identity.Principal, orgID string, paused bool) error {
	if !p.CanAdminOrg(orgID) {
		return errors.New("not permitted")
	}
	q.paused[orgID] = paused
	return q.fails()
}

func (q *queues) Cancel(_ context.Context, _ store.Stack, deploymentID, by string, force bool) error {
	if force || !strings.Contains(by, "may have run since") {
		return errors.New("not what a restore does")
	}
	q.cancelled = append(q.cancelled, deploymentID)
	return q.fails()
}

var backupTime = time.Date(2026, 11, 29, 14, 5, 0, 0, time.UTC)

// restored prepares a restored installation with the organizations a, b and c, of which c was paused before.
func restored(t *testing.T, db *store.DB) {
	t.Helper()
	must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		for _, id := range []string{"a", "b", "c"} {
			if err := tx.InsertOrganization(store.Organization{ID: id, Name: "org-" + id}); err != nil {
				return err
			}
		}
		if err := tx.SaveOrgQueue(store.OrgQueue{OrgID: "c", Paused: true}); err != nil {
			return err
		}
		if err := tx.InsertUser(store.User{ID: "ann", Login: "ann"}); err != nil {
			return err
		}
		if err := tx.InsertSession(store.Session{ID: "s", Hash: []byte("h"), UserID: "ann", SeenAt: tx.Now(), EndsAt: tx.Now().Add(time.Hour)}); err != nil {
			return err
		}
		for status, id := range map[workflow.Status]string{workflow.StatusNotStarted: "queued", workflow.StatusAccepted: "accepted", workflow.StatusRunning: "running", workflow.StatusSucceeded: "ended"} {
			if err := tx.InsertStack(store.Stack{ID: id, OrgID: "a", Project: "p", Name: id}); err != nil {
				return err
			}
			if err := tx.InsertDeployment(store.Deployment{ID: id, OrgID: "a", StackID: id}); err != nil {
				return err
			}
			if err := tx.InsertJob(store.Job{ID: "job-" + id, DeploymentID: id, OrgID: "a", StackID: id, Status: status}); err != nil {
				return err
			}
		}
		mark, err := recovery.Mark(backupTime)
		if err != nil {
			return err
		}
		return tx.SetInstallation(recovery.Name, mark)
	}))
}

// TestRecovery begins a restored installation, with interruptions, and releases it.
func TestRecovery(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		restored(t, db)
		q := &queues{paused: map[string]bool{}}
		s := recovery.New(db, q, storetest.Log())
		if _, _, err := s.Release(t.Context(), ""); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("a release before the first start: %v", err)
		}
		for at := 1; ; at++ { // the server is killed at each step
			q.failAt = at
			if err := s.Begin(t.Context()); err == nil {
				break
			}
			q.failAt = 0
		}
		slices.Sort(q.cancelled)
		if got := slices.Compact(q.cancelled); !slices.Equal(got, []string{"accepted", "queued"}) {
			t.Errorf("cancelled %v", got)
		}
		if sessions := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Session, error) { return tx.SessionsOf("ann") }))(t); len(sessions) > 0 {
			t.Errorf("the sessions %v remain", sessions)
		}
		for _, id := range []string{"a", "b", "c"} {
			if !q.paused[id] {
				t.Errorf("the organization %s is not paused", id)
			}
		}
		// A second start changes nothing, and what waits does not run.
		q.failAt, q.cancelled = 0, nil
		must.OK(t, s.Begin(t.Context()))
		if len(q.cancelled) > 0 {
			t.Errorf("the second start cancelled %v", q.cancelled)
		}
		waiting, end := context.WithCancel(t.Context())
		end()
		if err := s.Hold(func(context.Context) error { t.Error("the work runs before the release"); return nil })(waiting); err == nil {
			t.Error("the wait ended without an error")
		}
		if _, _, err := s.Release(t.Context(), "org-x"); fault.KindOf(err) != fault.KindNotFound || !strings.Contains(err.Error(), "org-a, org-b, org-c") {
			t.Errorf("releasing another organization: %v", err)
		}
		released, remaining, err := s.Release(t.Context(), "org-a")
		if err != nil || !slices.Equal(released, []string{"org-a"}) || !slices.Equal(remaining, []string{"org-b", "org-c"}) || q.paused["a"] || !q.paused["b"] {
			t.Errorf("released %v, remaining %v, %v; paused %v", released, remaining, err, q.paused)
		}
		if r := must.Get(s.Read(t.Context()))(t); r == nil || !r.Backup.Equal(backupTime) {
			t.Errorf("the record is %+v", r)
		}
		released, remaining, err = s.Release(t.Context(), "")
		if err != nil || !slices.Equal(released, []string{"org-b", "org-c"}) || len(remaining) > 0 || q.paused["b"] || !q.paused["c"] {
			t.Errorf("released %v, remaining %v, %v; paused %v", released, remaining, err, q.paused)
		}
		ran := errors.New("ran")
		if err := s.Hold(func(context.Context) error { return ran })(t.Context()); !errors.Is(err, ran) {
			t.Errorf("the work after the release: %v", err)
		}
		must.OK(t, s.Begin(t.Context()))
	})
}

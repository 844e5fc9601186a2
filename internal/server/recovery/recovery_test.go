package recovery_test

import (
	"context"
	"errors"
	"maps"
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
	assumed   []string // that these may run
	failAt    int
}

func (q *queues) fails() error {
	if q.failAt--; q.failAt == 0 {
		return errors.New("the server was killed")
	}
	return nil
}

func (q *queues) PauseOrgIn(_ context.Context, _ *store.Tx, p identity.Principal, orgID string, paused bool) error {
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

func (q *queues) AssumeStarted(_ context.Context, u store.Unfinished, note string) error {
	if !strings.Contains(note, "of 2026-11-29T14:05:00Z, when this deployment was "+string(u.Status)) {
		return errors.New("not what a restore notes: " + note)
	}
	q.assumed = append(q.assumed, u.DeploymentID)
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
		if err := tx.InsertSignInLink(store.SignInLink{Hash: []byte("h"), UserID: "ann", CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(time.Hour)}); err != nil {
			return err
		}
		if err := tx.InsertInvitation(store.Invitation{ID: "i", OrgID: "a", Hash: []byte("h"), CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(time.Hour)}); err != nil {
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
		sorted := func(ids []string) []string { slices.Sort(ids); return slices.Compact(ids) }
		if got := sorted(q.cancelled); !slices.Equal(got, []string{"queued"}) {
			t.Errorf("cancelled %v", got)
		}
		if got := sorted(q.assumed); !slices.Equal(got, []string{"accepted", "running"}) {
			t.Errorf("assumed that %v run", got)
		}
		was := map[string]workflow.Status{}
		list, more, err := s.Unfinished(t.Context(), "a")
		for _, d := range list {
			was[d.ID] = d.Was
		}
		if err != nil || more != 0 || !maps.Equal(was, map[string]workflow.Status{"queued": workflow.StatusNotStarted, "accepted": workflow.StatusAccepted, "running": workflow.StatusRunning}) {
			t.Errorf("listed %v and %d more, %v", was, more, err)
		}
		if list, _, err := s.Unfinished(t.Context(), "b"); err != nil || len(list) > 0 {
			t.Errorf("listed %v of another organization, %v", list, err)
		}
		if sessions := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Session, error) { return tx.SessionsOf("ann") }))(t); len(sessions) > 0 {
			t.Errorf("the sessions %v remain", sessions)
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			// Both can have been used after the backup.
			_, link := tx.SignInLink([]byte("h"))
			_, invitation := tx.InvitationByHash([]byte("h"))
			if !errors.Is(link, store.ErrNotFound) || !errors.Is(invitation, store.ErrNotFound) {
				t.Errorf("a link remains: %v, %v", link, invitation)
			}
			return nil
		}))
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
		if r := must.Get(s.Read(t.Context()))(t); r == nil || !r.Backup.Equal(backupTime) || r.Waits("a") || !r.Waits("b") {
			t.Errorf("the record is %+v", r)
		}
		resume := func(id string) error {
			return db.Read(t.Context(), func(tx *store.Tx) error { return recovery.CheckResume(tx, id) })
		}
		if err := resume("b"); fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "restore release org-b") {
			t.Errorf("resuming the deployments of b: %v", err)
		}
		must.OK(t, resume("a"))
		// A release that is interrupted can be repeated.
		q.failAt = 1
		if released, remaining, err := s.Release(t.Context(), "org-b"); err == nil || len(released) > 0 || !slices.Equal(remaining, []string{"org-b", "org-c"}) {
			t.Errorf("an interrupted release: %v, %v, %v", released, remaining, err)
		}
		q.failAt = 0
		if err := resume("b"); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("resuming after an interrupted release: %v", err)
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
		if r := must.Get(s.Read(t.Context()))(t); r == nil || r.Paused() {
			t.Errorf("after the release, the record is %+v", r)
		}
		must.OK(t, resume("c"))
	})
}

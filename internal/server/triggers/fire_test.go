package triggers_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/workflow"
)

const (
	succeeded = store.ScheduleSucceeded
	skipped   = store.ScheduleSkipped
	failed    = store.ScheduleFailed
)

func TestFires(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	id := s.cron(st, "* * * * *")
	s.sweep(0)
	s.expect(st, id)
	s.sweep(time.Minute)
	s.sweep(0)
	s.expect(st, id, succeeded)
	e := s.events(st, id)[0]
	d, err := s.deployments.Get(t.Context(), st, e.DeploymentID)
	s.must(err)
	if d.Version != 1 || e.Version != 1 || d.Initiator != "schedule" || d.Requester != "admin" || string(d.Operation) != "update" {
		t.Errorf("event %+v, deployment %+v", e, d.Deployment)
	}
	c := s.schedule(st, id)
	if !c.LastAt.Equal(e.HappenedAt) || !c.NextAt.After(e.DueAt) || e.DueAt.After(e.HappenedAt) {
		t.Errorf("schedule %+v, event %+v", c, e)
	}
	s.drain(st)
	s.sweep(time.Minute)
	s.expect(st, id, succeeded, succeeded)
}

// TestSecretsOfEarlierSchedules fires a schedule with a secret that an earlier server has bound only to
// its stack. A change of the schedule binds it to its member.
func TestSecretsOfEarlierSchedules(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	ring, err := keyring.Open(t.Context(), s.db, bytes.Repeat([]byte{7}, 32))
	s.must(err)
	ct, err := ring.Encrypt(t.Context(), "deployments/"+st.ID, []byte("the variable"))
	s.must(err)
	variable := func(name string) string {
		return fmt.Sprintf(`{"operation":"update","operationContext":{"environmentVariables":{"%s":{"ciphertext":"%s"}}}}`, name, base64.StdEncoding.EncodeToString(ct))
	}
	id := s.cron(st, "* * * * *")
	s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		c, err := tx.Schedule(id)
		c.Request = variable("A")
		return errors.Join(err, tx.UpdateSchedule(c))
	}))
	fire := func() {
		t.Helper()
		s.sweep(time.Minute)
		e := s.events(st, id)[0]
		secrets, err := s.deployments.KnownSecrets(t.Context(), e.DeploymentID)
		s.must(err)
		if !slices.ContainsFunc(secrets, func(r redact.Secret) bool { return r.Value == "the variable" }) {
			t.Errorf("the job of %+v lacks the secret", e)
		}
		s.drain(st)
	}
	fire()
	spec := triggers.Spec{Kind: store.CustomSchedule, Cron: "* * * * *"}
	spec.Request = asked(t, variable("B"))
	if _, err = s.triggers.Update(t.Context(), s.user, st, id, spec); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "operationContext.environmentVariables.B:") {
		t.Errorf("the secret in another member: %v", err)
	}
	if _, err = s.triggers.Create(t.Context(), s.user, st, spec); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("the secret in another schedule: %v", err)
	}
	for _, request := range []*workflow.Request{nil, asked(t, variable("A"))} {
		spec.Request = request
		c, err := s.triggers.Update(t.Context(), s.user, st, id, spec)
		s.must(err)
		if c.Request == variable("A") || !strings.Contains(c.Request, "ciphertext") {
			t.Errorf("the secret was not encrypted again: %s", c.Request)
		}
		fire()
	}
}

// TestCatchUp lets schedules be late.
func TestCatchUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cron   bool
		kind   store.ScheduleKind
		late   time.Duration
		want   []store.ScheduleResult // newest first
		listed bool
	}{
		{"hourly, 5 hours", true, store.CustomSchedule, 5 * time.Hour, []store.ScheduleResult{succeeded}, true},
		{"drift, 23 hours", true, store.DriftSchedule, 23 * time.Hour, []store.ScheduleResult{succeeded}, true},
		{"hourly, 3 days", true, store.CustomSchedule, 72 * time.Hour, []store.ScheduleResult{succeeded, skipped}, true},
		{"once, 23 hours", false, store.CustomSchedule, 23 * time.Hour, []store.ScheduleResult{succeeded}, false},
		{"once, 25 hours", false, store.CustomSchedule, 25 * time.Hour, []store.ScheduleResult{skipped}, true},
		{"TTL, 60 days", false, store.TTLSchedule, 60 * 24 * time.Hour, []store.ScheduleResult{succeeded}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			st := s.stack("dev")
			spec := triggers.Spec{Kind: tt.kind, Request: asked(t, update)}
			if tt.cron {
				spec.Cron = "0 * * * *"
			} else {
				spec.Once = s.clock.Now().Add(time.Hour)
			}
			id := s.create(st, spec)
			s.clock.Pass(time.Hour)
			s.sweep(tt.late)
			s.sweep(0)
			s.expect(st, id, tt.want...)
			if want := tt.want[0] == succeeded; (s.deployed(st) == 1) != want {
				t.Errorf("%d deployments", s.deployed(st))
			}
			list, err := s.triggers.List(t.Context(), st)
			s.must(err)
			if (len(list) == 1) != tt.listed {
				t.Errorf("the list contains %d schedules", len(list))
			}
			if e := s.events(st, id)[len(tt.want)-1]; e.Result == skipped && !strings.Contains(e.Message, "missed") {
				t.Errorf("message = %q", e.Message)
			}
			s.sweep(time.Hour)
			if n := len(s.events(st, id)); tt.cron != (n == len(tt.want)+1) {
				t.Errorf("an hour later: %d events", n)
			}
		})
	}
}

// TestQueuedRun pauses a stack for a week. Its schedule fires every minute, but queues only one
// deployment.
func TestQueuedRun(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	s.must(s.deployments.PauseStack(t.Context(), s.user, st, true))
	id := s.cron(st, "* * * * *")
	other := s.cron(st, "* * * * *")
	for range 5 {
		s.sweep(time.Minute)
	}
	s.expect(st, id, skipped, skipped, skipped, skipped, succeeded)
	s.expect(st, other, skipped, skipped, skipped, skipped, succeeded)
	if message := s.events(st, id)[0].Message; !strings.Contains(message, "still queued") {
		t.Errorf("message = %q", message)
	}
	s.drain(st)
	s.sweep(time.Minute)
	if n := s.deployed(st); n != 4 {
		t.Errorf("%d deployments, want 4", n)
	}
}

// TestPausedSchedule does not fire. A resumed recurring schedule does not catch up; a resumed TTL
// schedule does.
func TestPausedSchedule(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	cron := s.cron(st, "* * * * *")
	ttl := s.create(st, triggers.Spec{Kind: store.TTLSchedule, Once: s.clock.Now().Add(time.Minute), Request: asked(t, `{"operation":"destroy"}`)})
	for _, id := range []string{cron, ttl} {
		s.must(s.triggers.Pause(t.Context(), st, id, true))
	}
	s.sweep(48 * time.Hour)
	for _, id := range []string{cron, ttl} {
		s.expect(st, id)
		s.must(s.triggers.Pause(t.Context(), st, id, false))
	}
	s.sweep(0)
	s.expect(st, cron)
	s.expect(st, ttl, succeeded)
	s.sweep(time.Minute)
	s.expect(st, cron, succeeded)
}

// TestClockSet sets the clock back and forth. No schedule may fire twice for one time, or stop.
func TestClockSet(t *testing.T) {
	t.Run("back", func(t *testing.T) {
		s := newSite(t)
		st := s.stack("dev")
		id := s.cron(st, "0 * * * *")
		s.sweep(time.Hour)
		s.drain(st)
		s.expect(st, id, succeeded)
		s.clock.Set(-time.Hour)
		s.sweep(0)
		s.sweep(time.Hour) // the same hour again
		s.sweep(0)
		s.expect(st, id, succeeded)
		s.sweep(time.Hour)
		s.expect(st, id, succeeded, succeeded)
	})
	t.Run("a year ahead and back", func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		s := newSite(t)
		st := s.stack("dev")
		cron := s.cron(st, "0 * * * *")
		once := s.create(st, triggers.Spec{Kind: store.CustomSchedule, Once: s.clock.Now().Add(3 * time.Hour), Request: asked(t, update)})
		s.clock.Set(year)
		s.sweep(0)
		s.expect(st, cron, skipped)
		s.expect(st, once, skipped)
		s.clock.Set(-year)
		s.sweep(0)
		s.sweep(time.Hour)
		s.expect(st, cron, skipped) // the skipped hour is now due again
		s.sweep(time.Hour)
		s.expect(st, cron, succeeded, skipped)
		s.sweep(time.Hour)
		s.expect(st, once, succeeded)
	})
}

// TestRefused records why a schedule could not create a deployment.
func TestRefused(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	token, err := s.ids.CreateUser(t.Context(), identity.NewUser{Login: "ada", Org: "acme", Role: identity.RoleMember})
	s.must(err)
	ada, err := s.ids.Authenticate(t.Context(), token)
	s.must(err)
	s.must(s.ids.SetStackPermission(t.Context(), s.org.ID, store.WritePermission))
	st, err = store.Read(t.Context(), s.db, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(st.ID) })
	s.must(err)
	c, err := s.triggers.Create(t.Context(), ada, st, triggers.Spec{Kind: store.CustomSchedule, Cron: "* * * * *", Request: asked(t, update)})
	s.must(err)
	check := func(text string) {
		t.Helper()
		s.sweep(time.Minute)
		e := s.events(st, c.ID)[0]
		if e.Result != failed || !strings.Contains(e.Message, text) || e.Version != 0 {
			t.Errorf("event %+v, want %q", e, text)
		}
	}
	s.must(s.ids.SetStackPermission(t.Context(), s.org.ID, store.ReadPermission))
	check(`ada may not do this with stack acme/proj/dev: it needs the permission "write"`)
	s.must(s.ids.RemoveMember(t.Context(), s.org, "ada"))
	check("ada, on whose behalf this happens, does not belong")
	outcome := func() triggers.Outcome {
		t.Helper()
		list, err := s.triggers.List(t.Context(), st)
		s.must(err)
		all, err := s.triggers.Outcomes(t.Context(), list)
		s.must(err)
		return all[c.ID]
	}
	if o := outcome(); o.Result != failed || o.Status != "" || !strings.Contains(o.Message, "does not belong") {
		t.Errorf("the last outcome is %+v", o)
	}

	// The administrator takes the schedule over.
	_, err = s.triggers.Update(t.Context(), s.user, st, c.ID, triggers.Spec{Kind: store.CustomSchedule, Cron: "* * * * *"})
	s.must(err)
	s.sweep(time.Minute)
	s.expect(st, c.ID, succeeded, failed, failed)
	if o := outcome(); o.Result != succeeded || o.Status != workflow.StatusNotStarted || o.Version != 1 {
		t.Errorf("the last outcome is %+v", o)
	}
}

// TestStackGone removes schedules with their stack, and keeps them when the stack is renamed.
func TestStackGone(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	id := s.cron(st, "* * * * *")
	_, err := s.stacks.Rename(t.Context(), s.user, st, "prod", "")
	s.must(err)
	s.sweep(time.Minute)
	d, err := s.deployments.Get(t.Context(), st, "1")
	s.must(err)
	if d.Stack != "prod" {
		t.Errorf("the deployment's stack is %s", d.Stack)
	}
	s.drain(st)
	s.must(s.stacks.Delete(t.Context(), s.user, st, true))
	s.sweep(time.Minute)
	s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
		if _, err := tx.Schedule(id); err == nil {
			t.Error("the schedule still exists")
		}
		return nil
	}))
}

// TestOneScheduleFails damages the settings of one stack. Its schedules must not hold up the others,
// and are tried again; TTL schedules without a limit.
func TestOneScheduleFails(t *testing.T) {
	s := newSite(t)
	bad, good := s.stack("bad"), s.stack("good")
	broken, fine := s.cron(bad, "0 * * * *"), s.cron(good, "0 * * * *")
	damage := func(document string) {
		s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			row, err := tx.DeploymentSettings(bad.ID)
			row.Document = document
			if err == nil {
				err = tx.SaveDeploymentSettings(row)
			}
			return err
		}))
	}
	damage("{")
	s.sweep(time.Hour)
	s.expect(good, fine, succeeded)
	s.expect(bad, broken)
	damage("{}")
	s.sweep(10 * time.Second)
	s.expect(bad, broken, succeeded)

	ttl := s.create(bad, triggers.Spec{Kind: store.TTLSchedule, Once: s.clock.Now().Add(time.Minute), Request: asked(t, `{"operation":"destroy"}`)})
	damage("{")
	s.drain(bad)
	for range 10 {
		s.sweep(10 * time.Minute)
	}
	s.expect(bad, broken, failed, succeeded)
	s.expect(bad, ttl)
	damage("{}")
	s.sweep(10 * time.Minute)
	s.expect(bad, ttl, succeeded)
}

// TestLongHistory fires a schedule more often than its history shows.
func TestLongHistory(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	id := s.cron(st, "* * * * *") // its first deployment stays in the queue
	first := s.schedule(st, id).NextAt
	for range 503 {
		s.sweep(time.Minute)
	}
	if n := len(s.events(st, id)); n != 500 {
		t.Errorf("%d events, want 500", n)
	}
	for i, want := range []bool{false, false, false, true} {
		_, err := store.Read(t.Context(), s.db, func(tx *store.Tx) (store.ScheduleEvent, error) {
			return tx.ScheduleEvent(id, first.Add(time.Duration(i)*time.Minute))
		})
		if (err == nil) != want {
			t.Errorf("event %d: %v, want it kept: %t", i, err, want)
		}
	}
}

func TestForget(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	once := s.create(st, triggers.Spec{Kind: store.CustomSchedule, Once: s.clock.Now().Add(time.Minute), Request: asked(t, update)})
	cron := s.cron(st, "* * * * *")
	s.sweep(time.Minute)
	s.clock.Pass(89 * 24 * time.Hour)
	s.must(s.triggers.Forget(t.Context()))
	s.expect(st, once, succeeded)
	s.clock.Pass(2 * 24 * time.Hour)
	s.must(s.triggers.Forget(t.Context()))
	s.expect(st, cron)
	if _, err := s.triggers.Get(t.Context(), st, once); err == nil {
		t.Error("a schedule that fired long ago still exists")
	}
	if _, n, err := s.deployments.List(t.Context(), deployments.Filter{OrgID: st.OrgID, StackID: st.ID, Page: 1, PageSize: 10}); err != nil || n != 2 {
		t.Errorf("%d deployments, %v", n, err)
	}
}

// TestResumeForADisabledUser checks that a schedule is not resumed on behalf of a user who can no longer deploy.
func TestResumeForADisabledUser(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	id := s.cron(st, "* * * * *")
	s.must(s.triggers.Pause(t.Context(), st, id, true))
	s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		u, err := tx.UserByLogin("admin")
		return errors.Join(err, tx.SetDisabled(u.ID, tx.Now()))
	}))
	err := s.triggers.Pause(t.Context(), st, id, false)
	if fault.KindOf(err) != fault.KindConflict || !strings.Contains(err.Error(), "admin, on whose behalf this happens, is disabled; change the schedule") {
		t.Errorf("resuming: %v", err)
	}
	if !s.schedule(st, id).Paused {
		t.Error("the schedule is not paused")
	}
}

package triggers_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestSchedulesOfLeavers disables a user with a due schedule. It starts nothing, also not after another user has resumed
// it by force, until it is handed over.
func TestSchedulesOfLeavers(t *testing.T) {
	s := newSite(t)
	st := s.stack("dev")
	boss := s.user
	s.user = must.Get(s.ids.Authenticate(t.Context(), must.Get(s.ids.CreateUser(t.Context(), identity.NewUser{Login: "ann", Org: "acme", Role: identity.RoleAdmin}))(t)))(t)
	id := s.cron(st, "* * * * *")
	if ended := must.Get(s.ids.DisableUser(t.Context(), identity.Operator(), "ann", ""))(t); ended.Paused != 1 {
		t.Errorf("disabling ended %+v", ended)
	}
	s.sweep(time.Minute)
	s.expect(st, id)
	s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		c, err := tx.Schedule(id)
		must.OK(t, err)
		c.Paused = false
		return tx.UpdateSchedule(c)
	}))
	s.sweep(time.Minute)
	s.expect(st, id, failed)
	if e := s.events(st, id)[0]; !strings.Contains(e.Message, "ann, on whose behalf this happens, is disabled") || s.deployed(st) != 0 {
		t.Errorf("%+v with %d deployments", e, s.deployed(st))
	}
	must.Get(s.ids.HandOver(t.Context(), identity.Operator(), "ann", boss.User.Login))(t)
	s.sweep(time.Minute)
	s.expect(st, id, succeeded, failed)
	if d := must.Get(s.deployments.Get(t.Context(), st, s.events(st, id)[0].DeploymentID))(t); d.Requester != boss.User.Login {
		t.Errorf("the deployment is of %s", d.Requester)
	}
}

package deployments_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestExpiredConfigurations checks that a deployment whose long configuration was removed with its log is
// still shown, and that running it again names the reason.
func TestExpiredConfigurations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		long := `{"operation":"update","operationContext":{"environmentVariables":{"A":"` + strings.Repeat("x", store.LongText) + `"}}}`
		var ids [2]string
		for i, body := range []string{`{"operation":"update"}`, long} {
			d, err := p.service.Create(t.Context(), p.user, st, asked(t, body), "api")
			p.must(err)
			c := p.poll("a")
			p.must(p.heartbeat(c, "starting"))
			p.must(p.result(c, workflow.StatusFailed))
			ids[i] = d.ID
			p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.ExpireLog(c.Job.ID) }))
		}
		d, err := p.service.Get(t.Context(), st, ids[1])
		if err != nil || d.Settings == nil || d.Settings.Git() != nil {
			t.Errorf("the settings are %+v, %v, want none", d.Settings, err)
		}
		_, err = p.again(st, ids[1])
		if fault.KindOf(err) != fault.KindGone || !strings.Contains(err.Error(), "keep_logs_for") {
			t.Errorf("running it again: %v", err)
		}
		if _, err := p.again(st, ids[0]); err != nil {
			t.Errorf("running a deployment with a short configuration again: %v", err)
		}
	})
}

// TestActOnBehalf queues deployments on behalf of actors whose rights changed since they were
// recorded.
func TestActOnBehalf(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		ids := identity.New(db, storetest.Log())
		st := p.stack("dev")
		person := func(login string) identity.Principal {
			token, err := ids.CreateUser(t.Context(), identity.NewUser{Login: login, Org: "acme", Role: identity.RoleMember})
			p.must(err)
			who, err := ids.Authenticate(t.Context(), token)
			p.must(err)
			return who
		}
		create := func(actor identity.Actor, body string) error {
			return db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				st, err := tx.Stack(st.ID)
				if err != nil {
					return err
				}
				who, err := identity.ActAs(tx, st, actor)
				if err != nil {
					return err
				}
				_, err = p.service.CreateIn(t.Context(), tx, who, st, asked(t, body), "test")
				return err
			})
		}
		const update, remove = `{"operation":"update"}`, `{"operation":"destroy","operationContext":{"options":{"deleteAfterDestroy":true}}}`
		check := func(what string, actor identity.Actor, body string, want fault.Kind) {
			t.Helper()
			if err := create(actor, body); fault.KindOf(err) != want || want == "" && err != nil {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		p.must(ids.SetStackPermission(t.Context(), p.org.ID, store.WritePermission))
		ada, bob := person("ada"), person("bob")
		check("a member", ada.Actor(), update, "")
		check("a member who removes the stack", ada.Actor(), remove, fault.KindForbidden)
		p.must(ids.SetRole(t.Context(), p.org, "ada", identity.RoleCollaborator))
		check("a collaborator without permission", ada.Actor(), update, fault.KindNotFound)
		p.must(ids.RemoveMember(t.Context(), p.org, "bob"))
		check("a former member", bob.Actor(), update, fault.KindForbidden)

		check("the administrator", p.user.Actor(), remove, "")
		exchanged := p.user
		exchanged.Exchanged = true
		check("the administrator by an exchanged token", exchanged.Actor(), update, "")

		robot := identity.Principal{Kind: identity.KindOrg, Org: p.org, TokenName: "robot"}
		check("an organization", robot.Actor(), update, "")
		check("an organization that removes the stack", robot.Actor(), remove, fault.KindForbidden)
		robot.Admin = true
		check("an administrative organization token", robot.Actor(), remove, "")

		team, err := ids.CreateTeam(t.Context(), p.org, store.Team{Name: "ops"})
		p.must(err)
		crew := identity.Principal{Kind: identity.KindOrg, Org: p.org, TeamID: team.ID, Team: team.Name}
		check("a team without permission", crew.Actor(), update, fault.KindNotFound)
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.SaveTeamStack(store.TeamStack{TeamID: team.ID, StackID: st.ID, Permission: store.WritePermission})
		}))
		check("a team", crew.Actor(), update, "")
		p.must(ids.DeleteTeam(t.Context(), p.org.ID, "ops"))
		check("a deleted team", crew.Actor(), update, fault.KindForbidden)

		if job := (identity.Principal{Kind: identity.KindJob, Org: p.org}); job.Actor() != "" {
			t.Errorf("a job is recorded as %q", job.Actor())
		}
	})
}

package api_test

import (
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
)

// TestAdministratorsManageUsers disables, enables and deletes a user who owns a stack and a schedule.
func TestAdministratorsManageUsers(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const users = "/api/server/users"
		ann, bob := l.person("ann", "acme", "member"), l.person("bob", "acme", "member")
		l.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "own"}, Auth: ann}).want(200, nil)
		const own = "/api/stacks/acme/proj/own"
		l.send(call{Method: "PUT", Path: own + "/deployments/settings", Auth: ann, Body: map[string]any{"agentPoolID": l.pool, "sourceContext": map[string]any{
			"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"},
		}}}).want(200, nil)
		schedules := own + "/deployments/schedules"
		l.send(call{Method: "POST", Path: schedules, Body: map[string]any{"scheduleCron": "0 3 * * *", "request": map[string]string{"operation": "preview"}}, Auth: ann}).want(200, nil)

		var list struct {
			Users []struct {
				Login    string
				Disabled *string
				Roles    map[string]string
			}
		}
		l.do("GET", users, nil).want(200, &list)
		if len(list.Users) != 3 || list.Users[1].Login != "ann" || list.Users[1].Disabled != nil || list.Users[1].Roles["acme"] != "member" {
			t.Errorf("the users are %+v", list.Users)
		}
		var owned struct {
			Owned []struct{ Kind, Organization, Name string }
			Total int
		}
		l.do("GET", users+"/ann/owned", nil).want(200, &owned)
		if owned.Total != 2 || len(owned.Owned) != 2 || owned.Owned[0].Kind != "schedule" || owned.Owned[1].Name != "proj/own" {
			t.Errorf("ann owns %+v", owned)
		}

		// Only administrators of the server manage users, also not those of an organization.
		must.OK(t, l.identity.SetRole(t.Context(), must.Get(l.identity.Organizations(t.Context()))(t)[0], "bob", identity.RoleAdmin))
		robot := "token " + l.token("/api/orgs/acme/tokens", map[string]any{"name": "robot", "admin": true})
		for _, auth := range []string{ann, bob, robot} {
			for _, c := range []call{
				{Method: "GET", Path: users},
				{Method: "GET", Path: users + "/ann/owned"},
				{Method: "POST", Path: users + "/ann/disable"},
				{Method: "POST", Path: users + "/ann/hand-over", Body: map[string]string{"to": "bob"}},
				{Method: "DELETE", Path: users + "/ann"},
			} {
				c.Auth = auth
				l.send(c).want(403, nil)
			}
		}

		var ended struct{ Tokens, PausedSchedules, Owned int }
		l.do("POST", users+"/ann/disable", nil).want(200, &ended)
		if ended.Tokens != 1 || ended.PausedSchedules != 1 || ended.Owned != 2 {
			t.Errorf("ended %+v", ended)
		}
		l.send(call{Method: "GET", Path: own, Auth: ann}).want(401, nil)
		l.do("GET", schedules, nil).want(200, nil).says(`"paused":true`)
		l.do("POST", users+"/ann/disable", nil).want(409, nil)
		l.do("POST", users+"/ann/enable", nil).want(204, nil)
		l.do("POST", users+"/ann/enable", nil).want(409, nil)
		l.do("DELETE", users+"/ann", nil).want(409, nil).says("ann owns 1 stack and 1 schedule; name the user who takes over")
		l.do("POST", users+"/ann/hand-over", map[string]string{"to": "nobody"}).want(404, nil)
		l.do("POST", users+"/ann/hand-over", map[string]string{"to": "admin"}).want(403, nil).says("you cannot take over")
		l.do("POST", users+"/ann/disable", map[string]string{"to": "admin"}).want(403, nil)
		l.do("DELETE", users+"/ann?to=admin", nil).want(403, nil)
		l.do("DELETE", users+"/ann?to=bob", nil).want(200, nil).says(`"login":"ann-deleted-`)
		l.do("DELETE", users+"/ann", nil).want(404, nil)
		l.do("DELETE", users+"/admin", nil).want(409, nil).says("last administrator of the server")
		l.send(call{Method: "GET", Path: own + "/collaborators", Auth: bob}).want(200, nil).says(`"stackCreatorUserName":"bob"`)
	})
}

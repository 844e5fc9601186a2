package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// foreignBody is a body that is valid for every route with an id in its path.
var foreignBody = map[string]any{
	"name": "stolen", "description": "stolen", "url": "https://stolen.example", "status": "failed", "phase": "running",
	"finishedAt": time.Unix(1700000000, 0), "tags": map[string]string{"stolen": "yes"}, "duration": 300,
	"policies": []any{map[string]any{
		"decision": "allow", "tokenType": "organization", "authorizedPermissions": []string{"admin"}, "rules": map[string]string{"sub": "*"},
	}},
	"version": 3, "deployment": map[string]any{"manifest": map[string]any{}, "resources": []any{}},
	"lines": []any{}, "offset": 0, "permissions": 101,
}

// neighbour adds a second stack to the lab's organization, and returns ids of its objects by path
// parameter.
func (l *lab) neighbour(name string) map[string][]string {
	l.t.Helper()
	path := l.deployable(name)
	id := l.deploy(path, "update")
	u := l.fixture.start(strings.TrimSuffix(path, "/deployments"), "update")
	return map[string][]string{"deploymentID": {id}, "updateID": {u.path[strings.LastIndexByte(u.path, '/')+1:]}}
}

// member creates an administrator of an organization who is not a site administrator. It returns
// the user's id, the token's id and the Authorization header.
func (l *lab) member(orgID, login string) (userID, tokenID, auth string) {
	l.t.Helper()
	u := store.User{ID: identity.NewID(), Login: login, CreatedAt: time.Now()}
	err := l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertUser(u); err != nil {
			return err
		}
		return tx.InsertMember(store.Member{OrgID: orgID, UserID: u.ID, Role: identity.RoleAdmin, CreatedAt: u.CreatedAt})
	})
	if err != nil {
		l.t.Fatal(err)
	}
	text := l.issue(store.Token{Kind: store.PersonalToken, UserID: u.ID})
	return u.ID, l.tokenID(text), "token " + text
}

func (l *lab) tokenID(text string) (id string) {
	l.t.Helper()
	err := l.db.Read(l.t.Context(), func(tx *store.Tx) error {
		t, err := tx.CredentialByHash(identity.HashToken(text))
		id = t.ID
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return id
}

// TestForeignIdsInOnesOwnOrganization calls every route with the caller's own organization, project
// and stack, and one id from another organization or another stack. Every call must fail.
func TestForeignIdsInOnesOwnOrganization(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	now := time.Now()
	rival := store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: now}
	if err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(rival) }); err != nil {
		t.Fatal(err)
	}
	l.stack("unused")
	acmeID, _, _ := l.ids("unused")
	rivalUser, rivalToken, rivalAuth := l.member(rival.ID, "rival-admin")
	_, _, auth := l.member(acmeID, "acme-admin")
	theirs := l.tenant("rival", rivalAuth)
	ours := l.tenant("acme", auth)

	otherPool, _ := l.newPool("other")
	for org, as := range map[string][2]string{"rival": {"theirs", rivalAuth}, "acme": {"others", auth}} {
		l.send(call{Method: "POST", Path: "/api/orgs/" + org + "/teams/pulumi", Body: map[string]any{"name": as[0]}, Auth: as[1]}).want(201, nil)
	}
	teamID := func(orgID, name string) (id string) {
		t.Helper()
		err := l.db.Read(t.Context(), func(tx *store.Tx) error {
			team, err := tx.TeamByName(orgID, name)
			id = team.ID
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	foreign := map[string][]string{}
	for _, name := range []string{"deploymentID", "poolID", "jobID", "updateID", "issuerID", "policyID", "integration", "stackID"} {
		foreign[name] = []string{theirs.names[name]}
	}
	for _, tok := range []store.Token{
		{Kind: store.OrgToken, OrgID: rival.ID, Name: "theirs"},
		{Kind: store.TeamToken, OrgID: rival.ID, Name: "theirs", TeamID: teamID(rival.ID, "team")},
		{Kind: store.TeamToken, OrgID: acmeID, Name: "of another team", TeamID: teamID(acmeID, "others")},
		{Kind: store.PersonalToken, UserID: rivalUser},
		{Kind: store.PoolToken, OrgID: acmeID, PoolID: otherPool},
		{Kind: store.PoolToken, OrgID: rival.ID, PoolID: theirs.names["poolID"]},
	} {
		foreign["tokenID"] = append(foreign["tokenID"], l.tokenID(l.issue(tok)))
	}
	foreign["tokenID"] = append(foreign["tokenID"], rivalToken)
	foreign["team"] = []string{"theirs"}
	next := l.neighbour("next")
	for name, ids := range next {
		foreign[name] = append(foreign[name], ids...)
	}
	before := l.everything(rivalAuth, theirs.names, next)

	credential := func(pattern string) string {
		for suffix, who := range map[string]string{"/renew_lease": "update", "/events/batch": "update", "/complete": "update", "/checkpoint": "update", "/checkpointverbatim": "update", "/journalentries": "update"} {
			if strings.HasSuffix(pattern, suffix) {
				return ours.auth[who]
			}
		}
		switch {
		case strings.HasPrefix(pattern, "/api/workflow/jobs/"):
			return ours.auth["runner"]
		case strings.HasPrefix(pattern, "/api/deployments/"):
			return ours.auth["agent"]
		default:
			return auth
		}
	}
	tried := map[string]int{}
	for _, route := range l.routes() {
		method, pattern, _ := strings.Cut(route, " ")
		for name, ids := range foreign {
			if !strings.Contains(pattern, "{"+name+"}") {
				continue
			}
			for _, id := range ids {
				with := tenant{names: maps.Clone(ours.names)}
				with.names[name] = id
				path := with.path(t, pattern)
				if strings.HasSuffix(pattern, "/log") {
					path += "?offset=0"
				}
				callers := []string{credential(pattern)}
				if strings.HasSuffix(pattern, "/{updateID}/events") && method == http.MethodPost {
					callers = []string{ours.auth["update"]}
				}
				if strings.HasPrefix(pattern, "/api/stacks/") {
					callers = append(callers, ours.auth["deployment"])
				}
				for _, caller := range callers {
					a := l.send(call{Method: method, Path: path, Body: foreignBody, Auth: caller})
					tried[name]++
					// The tokens of the update and the job are not valid credentials for a path
					// with another id.
					own := strings.HasPrefix(caller, "update-token") || caller == ours.auth["runner"] || caller == ours.auth["deployment"]
					if !slices.Contains([]int{400, 403, 404}, a.Status) && (!own || a.Status != 401) {
						t.Errorf("%s with a foreign %s: status %d, body %.200s", route, name, a.Status, a.Body)
					}
					if (a.Status == 400 || a.Status == 404) && !strings.Contains(string(a.Body), id) {
						t.Errorf("%s with a foreign %s was refused for another reason: %s", route, name, a.Body)
					}
				}
			}
		}
	}
	for name := range foreign {
		if tried[name] == 0 {
			t.Errorf("no route was tried with a foreign %s", name)
		}
	}

	stack := "/api/stacks/acme/proj/dev"
	pool := map[string]any{"agentPoolID": theirs.names["poolID"]}
	source := map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}}
	runner := []any{map[string]any{
		"decision": "allow", "tokenType": "runner", "runnerID": theirs.names["poolID"], "authorizedPermissions": []string{}, "rules": map[string]string{"sub": "*"},
	}}
	person := []any{map[string]any{
		"decision": "allow", "tokenType": "personal", "userLogin": "rival-admin", "authorizedPermissions": []string{}, "rules": map[string]string{"sub": "*"},
	}}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"PUT", stack + "/deployments/settings", pool},
		{"POST", stack + "/deployments/settings", pool},
		{"POST", stack + "/deployments", map[string]any{"operation": "update", "agentPoolID": theirs.names["poolID"], "sourceContext": source}},
		{"PATCH", "/api/orgs/acme", map[string]any{"setDefaultAgentPoolID": theirs.names["poolID"]}},
		{"PATCH", "/api/orgs/acme/auth/policies/" + ours.names["policyID"], map[string]any{"policies": runner}},
		{"PATCH", "/api/orgs/acme/auth/policies/" + ours.names["policyID"], map[string]any{"policies": person}},
	} {
		a := l.send(call{Method: c.method, Path: c.path, Body: c.body, Auth: auth})
		if !slices.Contains([]int{400, 403, 404}, a.Status) {
			t.Errorf("%s %s with a foreign id in its body: status %d, body %s", c.method, c.path, a.Status, a.Body)
		}
	}
	// Only agents of the same pool may repeat a poll.
	res, err := l.client.Poll(t.Context(), strings.TrimPrefix(ours.auth["agent"], "token "), protocol.PollRequest{
		AgentID: "agent of rival", SessionID: "s", PollID: "p rival", FreeSlots: 1, Types: []workflow.Type{workflow.TypeDeployment},
	})
	if err != nil || res.Job != nil {
		t.Errorf("the poll of another pool's agent, repeated, got %+v, %v", res.Job, err)
	}
	// An update names its deployment. The server ignores a deployment of another stack.
	for _, id := range foreign["deploymentID"] {
		prog := program()
		prog["metadata"] = map[string]any{"environment": map[string]string{"ci.build.id": id}}
		var created struct{ UpdateID string }
		l.send(call{Method: "POST", Path: stack + "/preview", Body: prog, Auth: auth}).want(200, &created)
		var linked store.Update
		err := l.db.Read(t.Context(), func(tx *store.Tx) (err error) {
			linked, err = tx.Update(created.UpdateID)
			return err
		})
		if err != nil || linked.DeploymentID != "" {
			t.Errorf("the update of a foreign deployment: %+v, %v", linked, err)
		}
	}

	after := l.everything(rivalAuth, theirs.names, next)
	for what, was := range before {
		if after[what] != was {
			t.Errorf("%s was\n%s\nand now is\n%s", what, was, after[what])
		}
	}
}

// everything returns all data of a tenant and the neighbouring stack that the API and the database
// show.
func (l *lab) everything(auth string, names map[string]string, next map[string][]string) map[string]string {
	l.t.Helper()
	out := map[string]string{}
	get := func(path, auth string) {
		out[path] = string(l.send(call{Method: "GET", Path: path, Auth: auth}).want(200, nil).Body)
	}
	stack := "/api/stacks/rival/proj/dev"
	for _, path := range []string{
		stack, stack + "/export", stack + "/updates", stack + "/update/" + names["updateID"], stack + "/update/" + names["updateID"] + "/events",
		stack + "/deployments/settings", stack + "/deployments", stack + "/deployments/" + names["deploymentID"], stack + "/deployments/" + names["deploymentID"] + "/logs",
		"/api/orgs/rival/agent-pools/" + names["poolID"], "/api/orgs/rival/oidc/issuers/" + names["issuerID"],
		"/api/orgs/rival/auth/policies/oidcissuers/" + names["issuerID"], "/api/orgs/rival/tokens", "/api/orgs/rival/teams/team/tokens", "/api/user/tokens",
	} {
		get(path, auth)
	}
	for _, path := range []string{
		"", "/export", "/updates", "/deployments", "/deployments/" + next["deploymentID"][0], "/update/" + next["updateID"][0],
		"/update/" + next["updateID"][0] + "/events",
	} {
		get("/api/stacks/acme/proj/next"+path, "token "+l.admin)
	}
	get("/api/orgs/acme/teams/others/tokens", "token "+l.admin)
	err := l.db.Read(l.t.Context(), func(tx *store.Tx) error {
		job, err := tx.Job(names["jobID"])
		if err != nil {
			return err
		}
		text, err := json.Marshal(job)
		out["the job"] = string(text)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

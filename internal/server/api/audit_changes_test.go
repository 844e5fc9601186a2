package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// notAudited lists the routes that write without an entry in the audit log, with the reason.
var notAudited = map[string][]string{
	"the deployment and its log record what agents and runners report": {
		"POST /api/background-activities/configuration", "POST /api/background-activities/worker/lease/acquire",
		"POST /api/agent-workflows/deployment", "POST /api/agent-workflows/{workflow}/check",
		"POST /api/workflow/jobs/{jobID}/heartbeat", "POST /api/workflow/jobs/{jobID}/oidc-token", "POST /api/workflow/jobs/{jobID}/result",
		"PATCH /api/workflow/jobs/{jobID}/{step}/status", "POST /api/workflow/jobs/{jobID}/{step}/logs", "PUT /api/workflow/jobs/{jobID}/{step}/log",
	},
	"the stack's history records updates": {
		"POST STACK/begin-update", "POST STACK/preview", "POST STACK/update", "POST STACK/refresh", "POST STACK/destroy", "POST STACK/UPDATE/{updateID}",
		"POST STACK/UPDATE/{updateID}/renew_lease", "POST STACK/UPDATE/{updateID}/events", "POST STACK/UPDATE/{updateID}/events/batch",
		"POST STACK/UPDATE/{updateID}/complete", "PATCH STACK/UPDATE/{updateID}/checkpoint", "PATCH STACK/UPDATE/{updateID}/journalentries",
		"PATCH STACK/UPDATE/{updateID}/checkpointverbatim",
	},
	"it reads, with a filter in the body": {
		"POST /api/orgs/{org}/policyresults/issues", "POST /api/orgs/{org}/policyresults/issues/export", "POST /api/orgs/{org}/policyresults/issues/filters",
		"POST /api/orgs/{org}/policyresults/compliance", "POST /api/orgs/{org}/policyresults/policies",
	},
	"nothing is stored": {
		"POST /api/orgs/{org}/policy/exceptions/drafts", "POST STACK/encrypt", "POST STACK/batch-encrypt", "POST STACK/deployments/settings/encrypt", "POST /workflow/doctor/body",
		"POST /api/esc/environments/{org}/{project}/{environment}/encrypt-secrets",
	},
	"a draft, which changes nothing until an update publishes it": {"POST /api/esc/environments/{org}/{project}/{environment}/drafts"},
	"it reads, which package opening records": {
		"POST /api/esc/environments/{org}/{project}/{environment}/drafts/{draft}/open", "POST /api/workflow/jobs/{jobID}/environments",
		"POST /api/esc/environments/{org}/yaml/check", "POST /api/esc/environments/{org}/yaml/open",
		"POST /api/esc/environments/{org}/{project}/{environment}/check", "POST /api/esc/environments/{org}/{project}/{environment}/versions/{version}/check",
		"POST /api/esc/environments/{org}/{project}/{environment}/open", "POST /api/esc/environments/{org}/{project}/{environment}/versions/{version}/open",
		"POST /api/esc/environments/{org}/{project}/{environment}/decrypt-secrets",
	},
	"it reads: see TestEveryReadOfASecretIsAudited": {
		"POST STACK/decrypt", "POST STACK/batch-decrypt", "POST STACK/decrypt/log-decryption", "POST STACK/decrypt/log-batch-decryption",
	},
	"the webhook's list of deliveries records it": {
		"POST STACK/hooks/{hook}/ping", "POST STACK/hooks/{hook}/deliveries/{event}/redeliver",
		"POST /api/orgs/{org}/hooks/{hook}/ping", "POST /api/orgs/{org}/hooks/{hook}/deliveries/{event}/redeliver",
		"POST " + environmentPattern + "/hooks/{hook}/ping", "POST " + environmentPattern + "/hooks/{hook}/deliveries/{event}/redeliver",
	},
	"the list of the integration's events records it": {
		"POST /workflow/generic-vcs", "POST /workflow/github", "POST /workflow/github/{id}", "POST /workflow/gitlab/{id}", "POST /workflow/gitea/{id}",
		"POST /workflow/bitbucket/{id}", "POST /workflow/azure-devops/{id}",
	},
	"an evaluation changes nothing": {
		"POST /api/orgs/{org}/policygroups/{group}/evaluations", "POST STACK/policyevaluations",
		"POST STACK/policyevaluations/{id}/cancel",
		"PUT /api/preview/insights/{org}/policy/stacks/{project}/{stack}/updates/{version}/results",
	},
	"the entry about the published version has the digest of the archive": {"PUT /api/blobs/policy-packs/{id}"},
	"it is a preference of the user":                                      {"POST /api/user/organizations/{org}/default"},
}

// auditor makes changes and checks their entries in the audit log.
type auditor struct {
	*lab
	routes chi.Routes
	made   map[string]bool // by route
}

// volatile are tables and columns that change in the background, or with every request.
var volatile = []string{"audit_entries", "server_beats", "pool_agents", "tokens.last_used_at", "agent_pools.last_seen_at", "organization_storage"}

// change makes a change twice: first, while the audit log refuses entries, it must fail and change
// nothing. Then it must succeed and leave an entry. out is decoded from the second response.
func (a *auditor) change(method, path string, body, out any, options ...func(*call)) {
	a.t.Helper()
	c := call{Method: method, Path: path, Body: body}
	for _, o := range options {
		o(&c)
	}
	plain, _, _ := strings.Cut(path, "?")
	route := chi.NewRouteContext()
	if !a.routes.Match(route, method, plain) {
		a.t.Fatalf("%s %s is no route", method, path)
	}
	name := method + " " + routeName(route.RoutePattern())
	a.made[name] = true

	before := storetest.Contents(a.t, a.db, volatile...)
	allow := storetest.RefuseInserts(a.t, a.db, "audit_entries")
	refused := a.send(c)
	allow()
	if refused.Status < 500 {
		a.t.Errorf("%s: status %d although the audit log refuses entries: %s", name, refused.Status, refused.Body)
	}
	if diff := cmp.Diff(before, storetest.Contents(a.t, a.db, volatile...)); diff != "" {
		a.t.Errorf("%s changed the database without an entry in the audit log:\n%s", name, diff)
	}

	entries := a.entries()
	done := a.send(c)
	if done.Status >= 300 {
		a.t.Fatalf("%s: status %d: %s", name, done.Status, done.Body)
	}
	if out != nil {
		done.want(done.Status, out)
	}
	if a.entries() == entries {
		a.t.Errorf("%s left no entry in the audit log", name)
	}
}

func (a *auditor) entries() int {
	a.t.Helper()
	return len(storetest.Contents(a.t, a.db)["audit_entries"])
}

// routeName shortens the names of routes.
func routeName(pattern string) string {
	name := strings.Replace(pattern, "/api/stacks/{org}/{project}/{stack}", "STACK", 1)
	for _, kind := range []string{"update", "preview", "refresh", "destroy", "import", "rename"} {
		name = strings.Replace(name, "STACK/"+kind+"/{updateID}", "STACK/UPDATE/{updateID}", 1)
	}
	return strings.Replace(name, "STACK/{kind}/{updateID}", "STACK/UPDATE/{updateID}", 1)
}

// TestEveryChangeIsAudited makes a change through every route that writes. Each must leave an entry
// in the audit log in the transaction of the change, or be in the list of exceptions.
func TestEveryChangeIsAudited(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	routes, ok := l.server.Config.Handler.(chi.Routes)
	if !ok {
		t.Fatalf("the handler is a %T", l.server.Config.Handler)
	}
	a := &auditor{l, routes, map[string]bool{}}
	a.changeOrganization()
	a.changeUsers()
	a.changeIssuers()
	a.changeHooks("/api/orgs/acme")
	a.changeStack()
	a.changeDeployments()
	a.changeIntegrations()
	a.changePolicyResults()
	a.changePolicies()
	a.changeEnvironments()
	a.changeEnvironmentSource()

	exempt := map[string]bool{}
	for _, list := range notAudited {
		for _, r := range list {
			exempt[r] = true
		}
	}
	known := map[string]bool{}
	err := chi.Walk(routes, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		name := method + " " + routeName(strings.TrimSuffix(pattern, "/"))
		known[name] = true
		if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method) || a.made[name] || exempt[name] {
			return nil
		}
		t.Errorf("%s writes, but this test makes no change with it: add one, or an exception with a reason", name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range exempt {
		if !known[name] || a.made[name] {
			t.Errorf("the exception %s is not needed", name)
		}
	}
}

func (a *auditor) changeOrganization() {
	const org = "/api/orgs/acme"
	a.person("ann", "", "")
	a.change("POST", org+"/members/ann", map[string]string{"role": "member"}, nil)
	a.change("PATCH", org+"/members/ann", map[string]string{"role": "admin"}, nil)
	a.change("POST", org+"/members/admin/set-admin", map[string]any{}, nil)
	a.change("POST", org+"/teams/pulumi", map[string]string{"name": "core"}, nil)
	a.change("PATCH", org+"/teams/core", map[string]string{"memberAction": "add", "member": "ann"}, nil)
	a.change("DELETE", org+"/members/ann", nil, nil)
	a.change("PATCH", org, map[string]any{"setDefaultStackPermission": 101}, nil)
	a.change("PATCH", org, map[string]any{"setDefaultStackPermission": 102}, nil)
	a.change("PATCH", org, map[string]any{"setDefaultPulumiVersion": "3"}, nil)
	a.change("PATCH", org, map[string]any{"setProjectReads": false}, nil)
	var invitation struct{ ID string }
	a.change("POST", org+"/invites/link", map[string]string{"role": "member"}, &invitation)
	a.change("DELETE", org+"/invites/"+invitation.ID, nil, nil)
	for _, owner := range []string{org, org + "/teams/core", "/api/user"} {
		var token struct{ ID string }
		a.change("POST", owner+"/tokens", map[string]string{"name": "ci", "description": "ci"}, &token)
		a.change("DELETE", owner+"/tokens/"+token.ID, nil, nil)
	}
	a.change("DELETE", org+"/teams/core", nil, nil)
	var pool, token struct{ ID string }
	a.change("POST", org+"/agent-pools", map[string]string{"name": "eu"}, &pool)
	a.change("PATCH", org+"/agent-pools/"+pool.ID, map[string]string{"name": "us"}, nil)
	a.change("PATCH", org, map[string]string{"setDefaultAgentPoolID": pool.ID}, nil)
	a.change("POST", org+"/agent-pools/"+pool.ID+"/tokens", map[string]string{"description": "second"}, &token)
	a.change("DELETE", org+"/agent-pools/"+pool.ID+"/tokens/"+token.ID, nil, nil)
	a.change("DELETE", org+"/agent-pools/"+pool.ID, nil, nil)
}

func (a *auditor) changeUsers() {
	const users = "/api/server/users"
	leaver := a.person("leaver", "acme", "member")
	a.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]string{"stackName": "left"}, Auth: leaver}).want(200, nil)
	a.change("POST", users+"/leaver/disable", nil, nil)
	a.change("POST", users+"/leaver/enable", nil, nil)
	a.person("heir", "acme", "member")
	a.change("POST", users+"/leaver/hand-over", map[string]string{"to": "heir"}, nil)
	a.change("DELETE", users+"/leaver", nil, nil)
	a.do("DELETE", "/api/stacks/acme/proj/left", nil).want(204, nil)
}

func (a *auditor) changeIssuers() {
	t, ok := a.t.(*testing.T)
	if !ok {
		a.t.Fatal("this is no test")
	}
	const issuers = "/api/orgs/acme/oidc/issuers"
	trusted := newTestIssuer(t)
	key := trusted.newKey("k")
	var made, policy struct{ ID string }
	a.change("POST", issuers, map[string]string{"name": "cluster", "url": trusted.URL}, &made)
	a.change("PATCH", issuers+"/"+made.ID, map[string]string{"name": "renamed"}, nil)
	a.change("POST", issuers+"/"+made.ID+"/regenerate-thumbprints", nil, nil)
	a.do("GET", "/api/orgs/acme/auth/policies/oidcissuers/"+made.ID, nil).want(200, &policy)
	a.change("PATCH", "/api/orgs/acme/auth/policies/"+policy.ID, map[string]any{"policies": []any{a.runnerPolicy("allow", "agent-1")}}, nil)
	form := grant(trusted.token(key, nil), "runner", "runner:"+a.pool)
	a.change("POST", "/api/oauth/token", form.Encode(), nil, func(c *call) {
		c.Auth, c.Header = "none", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	})
	a.change("DELETE", issuers+"/"+made.ID, nil, nil)
}

func (a *auditor) changeHooks(owner string) {
	body := map[string]any{"name": "chat", "displayName": "chat", "payloadUrl": "https://127.0.0.1:1/x", "format": "raw", "active": true, "organizationName": "acme"}
	if rest, ok := strings.CutPrefix(owner, "/api/stacks/acme/"); ok {
		body["projectName"], body["stackName"], _ = strings.Cut(rest, "/")
	}
	a.change("POST", owner+"/hooks", body, nil)
	a.change("PATCH", owner+"/hooks/chat", map[string]any{"displayName": "talk", "active": false}, nil)
	a.change("DELETE", owner+"/hooks/chat", nil, nil)
}

func (a *auditor) changeStack() {
	a.change("POST", "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}, nil)
	const dev = "/api/stacks/acme/proj/dev"
	a.person("bob", "acme", "member")
	a.do("POST", "/api/orgs/acme/teams/pulumi", map[string]string{"name": "readers"}).want(201, nil)
	a.change("POST", dev+"/tags", map[string]string{"name": "a", "value": "1"}, nil)
	a.change("PATCH", dev+"/tags/a", map[string]string{"value": "2"}, nil)
	a.change("DELETE", dev+"/tags/a", nil, nil)
	a.change("PATCH", dev+"/tags", map[string]string{"b": "1"}, nil)
	a.change("PUT", dev+"/config", map[string]string{"environment": "", "secretsProvider": "service"}, nil)
	a.change("DELETE", dev+"/config", nil, nil)
	a.change("PATCH", dev+"/annotations/note", map[string]string{"text": "x"}, nil)
	a.change("PUT", dev+"/collaborators/bob", map[string]int{"permission": 101}, nil)
	a.change("DELETE", dev+"/collaborators/bob", nil, nil)
	a.change("PATCH", "/api/console/stacks/acme/proj/dev/teams/readers", map[string]int{"permissions": 101}, nil)
	var granted struct{ ID string }
	a.change("POST", dev+"/grants", map[string]any{"project": "web"}, &granted)
	a.change("DELETE", dev+"/grants/"+granted.ID, nil, nil)
	a.change("POST", dev+"/ownership", map[string]string{"githubLogin": "bob"}, nil)
	a.change("POST", dev+"/import", map[string]any{"version": 3, "deployment": map[string]any{"manifest": map[string]any{"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""}}}, nil)
	a.changeHooks(dev)
	u := a.fixture.start(dev, "update")
	a.change("POST", u.path+"/cancel", nil, nil)
	a.change("POST", dev+"/rename", map[string]string{"newName": "prod", "newProject": "proj"}, nil)

	a.change("POST", "/api/orgs", map[string]string{"name": "rival"}, nil)
	a.change("POST", "/api/stacks/acme/proj/prod/transfer", map[string]string{"toOrg": "rival"}, nil)
	a.change("DELETE", "/api/stacks/rival/proj/prod", nil, nil)
	const restore = "/api/orgs/rival/restore-stack"
	var deleted struct{ DeletedStacks []struct{ ID string } }
	a.do("GET", restore, nil).want(200, &deleted)
	id := deleted.DeletedStacks[0].ID
	a.change("POST", restore+"/"+id, map[string]string{"stackName": "prod"}, nil)
	a.change("DELETE", "/api/stacks/rival/proj/prod", nil, nil)
	a.change("DELETE", restore+"/"+id, nil, nil)
	a.change("PATCH", "/api/organizations/rival/quota", map[string]int{"deploymentQuota": 7}, nil)
	a.change("POST", "/api/orgs/rival/rename", map[string]string{"newName": "rivals"}, nil)
	a.change("DELETE", "/api/orgs/rival", map[string]string{"name": "rivals"}, nil)
}

func (a *auditor) changeDeployments() {
	a.stack("app")
	const path = "/api/stacks/acme/proj/app/deployments"
	source := map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}}
	a.change("PUT", path+"/settings", map[string]any{"agentPoolID": a.pool, "sourceContext": source}, nil)
	a.change("POST", path+"/settings", map[string]any{"operationContext": map[string]any{"preRunCommands": []string{"true"}}}, nil)
	var made struct{ ID string }
	a.change("POST", path, map[string]string{"operation": "preview"}, &made)
	a.change("POST", path+"/"+made.ID+"/cancel", nil, nil)
	a.change("POST", path+"/"+made.ID+"/again", nil, nil)
	a.change("DELETE", path+"/cache", nil, nil)
	a.change("POST", path+"/pause", nil, nil)
	a.change("POST", path+"/resume", nil, nil)
	a.change("POST", "/api/orgs/acme/deployments/pause", nil, nil)
	a.change("POST", "/api/orgs/acme/deployments/resume", nil, nil)
	a.restored()
	a.change("POST", "/api/orgs/acme/restore/release", nil, nil)
	for kind, body := range map[string]any{
		"/schedules":       map[string]any{"scheduleCron": "0 3 * * *", "request": map[string]string{"operation": "preview"}},
		"/drift/schedules": map[string]any{"scheduleCron": "0 3 * * *"},
		"/ttl/schedules":   map[string]any{"timestamp": "2100-01-02T03:04:05Z"},
	} {
		var schedule struct{ ID string }
		a.change("POST", path+kind, body, &schedule)
		a.change("POST", path+kind+"/"+schedule.ID, body, nil)
		if kind != "/schedules" {
			continue
		}
		a.change("POST", path+"/schedules/"+schedule.ID+"/pause", nil, nil)
		a.change("POST", path+"/schedules/"+schedule.ID+"/resume", nil, nil)
		a.change("DELETE", path+"/schedules/"+schedule.ID, nil, nil)
	}
	a.change("DELETE", path+"/settings", nil, nil)
}

func (a *auditor) changePolicyResults() {
	a.obey("acme")
	a.violate(a.stack("violates"))
	var list issueList
	a.do("POST", "/api/orgs/acme/policyresults/issues", "{}").want(200, &list)
	a.change("PATCH", "/api/orgs/acme/policyresults/issues/"+list.PolicyIssues[0].ID, map[string]string{"priority": "p0"}, nil)
	const exceptions = "/api/orgs/acme/policy/exceptions"
	a.change("POST", exceptions, map[string]any{
		"policyPack": "aws", "reason": "r", "match": []any{map[string]any{"policies": []string{"tags"}, "targets": []string{bucketURN("violates")}}},
	}, nil)
	a.change("DELETE", exceptions+"/EXC-1", nil, nil)
	err := a.db.Write(a.t.Context(), scope.Server(), func(tx *store.Tx) error {
		for _, table := range []string{"policy_groups", "policy_packs"} {
			if _, err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *auditor) changePolicies() {
	a.stack("obeys")
	var made struct{ UploadURI string }
	a.change("POST", packsPath, packDraft("aws", "1"), &made)
	a.put(a.address(made.UploadURI), "archive").want(204, nil)
	a.change("POST", packsPath+"/aws/versions/1/complete", nil, nil)
	a.publishPack("acme", "aws", "2", "archive")
	a.change("POST", groupsPath, map[string]any{"name": "g", "entityType": "stacks"}, nil)
	a.change("PATCH", groupsPath+"/g", map[string]any{"addPolicyPack": map[string]any{"name": "aws"}}, nil)
	a.change("PATCH", groupsPath+"/g/batch", []any{map[string]any{"addStack": map[string]any{"name": "obeys", "routingProject": "proj"}}}, nil)
	a.change("DELETE", groupsPath+"/g", nil, nil)
	a.change("DELETE", packsPath+"/aws/versions/1", nil, nil)
	a.change("DELETE", packsPath+"/aws", nil, nil)
}

func (a *auditor) changeIntegrations() {
	for _, path := range []string{"custom", "github", "github-enterprise", "gitlab", "bitbucket", "azure-devops"} {
		at := integrationsPath + "/" + path
		var made struct{ ID string }
		body := map[string]any{"name": "it", "accessToken": "token", "owner": "acme", "workspaceSlug": "acme", "organizationName": "acme", "projectId": "infra"}
		if path == "custom" || path == "github-enterprise" {
			body["baseUrl"] = "https://git.example"
		}
		a.change("POST", at, body, &made)
		a.change("PATCH", at+"/"+made.ID, map[string]any{"disablePRComments": true, "forkPullRequests": "approve"}, nil)
		if path == "custom" {
			a.change("POST", at+"/"+made.ID+"/repos", map[string]any{"name": "acme/r"}, nil)
			a.approve(made.ID)
			a.change("DELETE", at+"/"+made.ID+"/repos", map[string]any{"name": "acme/r"}, nil)
		}
		a.change("DELETE", at+"/"+made.ID, nil, nil)
	}
}

// approve approves a pull request of the repository that a stack watches.
func (a *auditor) approve(integrationID string) {
	a.stack("forked")
	const path = "/api/stacks/acme/proj/forked"
	a.do("PUT", path+"/deployments/settings", map[string]any{"vcs": map[string]any{"provider": "custom", "repository": "acme/r", "previewPullRequests": true}}).want(200, nil)
	head := strings.Repeat("a", 40)
	err := a.db.Write(a.t.Context(), scope.Server(), func(tx *store.Tx) error {
		repos, err := tx.Repos(integrationID)
		if err != nil {
			return err
		}
		return tx.SavePull(store.VCSPull{ID: "p", RepoID: repos[0].ID, Number: 7, State: "open", Head: head, Ref: "refs/pull/7/head", Fork: true})
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.change("POST", path+"/vcs/pulls/7/approve", map[string]string{"commit": head}, nil)
}

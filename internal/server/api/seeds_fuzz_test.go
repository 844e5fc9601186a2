package api_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"workflowagent/internal/server/vcs"
	signing "workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/integrations"
)

// seed is a request that real forges, tools and users have made, or an attacker. In paths and bodies, OLD
// and NEW stand for commits, and names in braces for the tenant's.
type seed struct {
	method, path string
	body         string
	status       int    // of the answer; 0 for any without an error of the server
	header       string // as in "Idempotency-Key: a"
}

const (
	settingsOf    = "/api/stacks/{org}/{project}/{stack}/deployments/settings"
	deploymentsOf = "/api/stacks/{org}/{project}/{stack}/deployments"
	olderOf       = "/api/preview/{org}/{project}/{stack}/deployments"
	integrate     = "/api/console/orgs/{org}/integrations/"
)

var seeds = []seed{
	// Settings: credentials that would follow a new address, sealed values in another place, unusual images,
	// names of variables, repositories and branches.
	{"POST", settingsOf, `{"sourceContext":{"git":{"repoUrl":"https://git.example/a.git","gitAuth":{"accessToken":{"secret":"t0ken-of-git"}}}}}`, 200, ""},
	{"POST", settingsOf, `{"sourceContext":{"git":{"repoUrl":"https://evil.example/a.git"}}}`, 200, ""},
	{"POST", settingsOf, `{"operationContext":{"environmentVariables":{"A":{"ciphertext":"AAAA"},"B":{"secret":"x","ciphertext":"AAAA"}}}}`, 400, ""},
	{"POST", settingsOf, `{"operationContext":{"environmentVariables":{"A,B":"1"}}}`, 200, ""},
	{"POST", settingsOf, `{"operationContext":{"environmentVariables":{"[\"A\",\"B\"]":"1","AWS_*":"2"}}}`, 200, ""},
	{"POST", settingsOf, `{"operationContext":{"environmentVariables":{"PULUMI_DEPLOY_GIT_DEPTH":"-1","PULUMI_DEPLOY_GIT_TAGS":"x"}}}`, 400, ""},
	{"POST", settingsOf, `{"executorContext":{"executorImage":"EVIL/x"}}`, 400, ""},
	{"POST", settingsOf, `{"executorContext":{"executorImage":{"reference":"EVIL/x"}}}`, 400, ""},
	{"POST", settingsOf, `{"executorContext":{"executorImage":{"image":"pulumi/pulumi"}}}`, 200, ""},
	{"POST", settingsOf, `{"operationContext":{"preruncommand":["x"],"options":{"shel":"bash"}},"surceContext":{}}`, 200, ""},
	{"POST", settingsOf, `{"sourceContext":{"git":{"repoUrl":"https://acme@dev.azure.com/acme/My%20Project/_git/My%20Repo","branch":"refs/tags/v1"}}}`, 200, ""},
	{"POST", settingsOf, `{"sourceContext":{"git":{"repoUrl":"git@ssh.dev.azure.com:v3/acme/My%20Project/My%20Repo"}}}`, 200, ""},
	{"POST", settingsOf, `{"sourceContext":{"git":{"repoUrl":"https://acme.visualstudio.com/DefaultCollection/My Project/_git/My Repo"}}}`, 400, ""},
	{"POST", settingsOf, `{"vcs":{"provider":"azure_devops","repository":"acme/My Project/My Repo","deployCommits":true}}`, 200, ""},
	{"POST", settingsOf, `{"vcs":{"provider":"azure_devops","repository":"acme/My%20Project/My%20Repo","deployCommits":true}}`, 200, ""},
	{"POST", settingsOf, `{"gitHub":{"repository":"acme/app.git","paths":["infra/**","!docs"],"deployCommits":true}}`, 200, ""},
	{"POST", settingsOf, `{"agentPoolID":"mine"}`, 400, ""},
	{"PUT", settingsOf, `{"operationContext":{"environmentVariables":{"BIG":{"secret":"` + strings.Repeat("x", 140<<10) + `"}}}}`, 200, ""},

	// Deployments: of older clients, with keys, with more secrets than an agent accepts.
	{"POST", olderOf, `{"executorContext":null,"sourceContext":{"git":{"repoURL":"https://git.example/a.git","branch":"refs/heads/main"}},"operationContext":{"operation":"update","preRunCommands":null}}`, 202, ""},
	{"POST", deploymentsOf, `{"operationContext":{"operation":"update"}}`, 400, ""},
	{"POST", deploymentsOf, `{"operation":"update","inheritSettings":false}`, 202, "Idempotency-Key: a"},
	{"POST", deploymentsOf, `{"operation":"update","inheritSettings":false}`, 202, "Idempotency-Key: a"},
	{"POST", deploymentsOf, `{"operation":"preview","inheritSettings":false}`, 409, "Idempotency-Key: a"},
	{"POST", deploymentsOf, `{"operation":"update"}`, 400, "Idempotency-Key: " + strings.Repeat("k", 300)},
	{"POST", deploymentsOf, `{"operation":"update"}`, 400, "Idempotency-Key: a b"},
	{"POST", deploymentsOf, `{"operation":"update","inheritSettings":false,"operationContext":{"environmentVariables":{"BIG":{"secret":"` + strings.Repeat("x", 140<<10) + `"}}}}`, 400, ""},
	{"GET", olderOf + "?asc=x", "", 400, ""},
	{"GET", deploymentsOf + "?status=failed&sort=none&pageSize=-1", "", 400, ""},
	{"GET", "/api/user/stacks?organization=none&tagName=a%00&unknown=1", "", 400, ""},
	{"GET", "/api/stacks/{org}/{project}/{stack}/updates?output-type=service&pageSize=10&page=1&status=x", "", 200, ""},

	// Schedules with time zones.
	{"POST", deploymentsOf + "/schedules", `{"scheduleCron":"CRON_TZ=Europe/Berlin 0 4 * * *","request":{"operation":"update"}}`, 400, ""},
	{"POST", deploymentsOf + "/schedules", `{"scheduleCron":"0 4 * * * Europe/Berlin","request":{"operation":"update"}}`, 400, ""},
	{"POST", deploymentsOf + "/schedules", `{"scheduleCron":"@every 1s","request":{"operation":"update"}}`, 400, ""},
	{"POST", deploymentsOf + "/drift/schedules", `{"scheduleCron":"TZ=UTC 0 4 * * *","autoRemediate":true}`, 400, ""},
	{"POST", deploymentsOf + "/ttl/schedules", `{"timestamp":"2999-01-01T00:00:00+02:00[Europe/Berlin]"}`, 400, ""},

	// Tokens that expire in more than 100 years, in milliseconds, or beyond all dates.
	{"POST", "/api/user/tokens", `{"description":"d","expires":1795000000000}`, 400, ""},
	{"POST", "/api/orgs/{org}/tokens", `{"name":"n","description":"d","expires":9223372036854775807}`, 400, ""},
	{"POST", "/api/orgs/{org}/teams/team/tokens", `{"name":"n","description":"d","expires":253402300800}`, 400, ""},
	{"POST", "/api/orgs/{org}/agent-pools/{poolID}/tokens", `{"name":"n","description":"d","expires":9223372036854775}`, 400, ""},

	// Addresses inside the network: those of integrations are refused when the server calls them.
	{"POST", integrate + "custom", `{"name":"a","baseUrl":"http://127.0.0.1:22","credentials":{"personalAccessToken":{"secret":"x"}}}`, 0, ""},
	{"POST", integrate + "custom", `{"name":"a","baseUrl":"http://[::ffff:127.0.0.1]/","flavor":"gitea","accessToken":"x"}`, 0, ""},
	{"POST", integrate + "github-enterprise", `{"name":"a","baseUrl":"https://169.254.169.254/latest","accessToken":"x","owner":"acme"}`, 0, ""},
	{"POST", "/api/orgs/{org}/oidc/issuers", `{"name":"a","url":"https://10.0.0.1"}`, 0, ""},
	{"POST", "/api/orgs/{org}/oidc/issuers", `{"name":"a","url":"https://[fd00::1]:6443/x?y"}`, 0, ""},

	// Organizations, and changes of nothing.
	{"POST", "/api/orgs", `{"name":"second"}`, 403, ""},
	{"DELETE", "/api/user/tokens/none", "", 404, ""},
	{"PATCH", "/api/orgs/{org}/hooks/none", `{"active":true}`, 404, ""},
	{"DELETE", deploymentsOf + "/schedules/none", "", 404, ""},

	// Deliveries of forges: see also package catalog, which tests their members.
	{"GITHUB", "push", `{"ref":"refs/heads/main","before":"OLD","after":"NEW","repository":{"id":7,"full_name":"acme/app","default_branch":["x"]},"sender":{"id":1},"installation":"x","head_commit":{"id":"NEW"}}`, 202, ""},
	{"GITHUB", "pull_request", `{"action":"assigned","pull_request":"x","repository":{"id":7}}`, 202, ""},
	{"GITHUB", "push", url.Values{"payload": {`{"ref":"refs/heads/main","repository":{"id":7}}`}}.Encode(), 202, "Content-Type: application/x-www-form-urlencoded"},
	{"GITHUB", "push", "a=b", 400, "Content-Type: application/x-www-form-urlencoded"},
	{"GITHUB", "workflow_run", "[", 202, ""},
	{"GITEA", "pull_request", `{"action":"opened","number":3,"pull_request":{"number":3,"head":{"label":"","ref":"refs/pull/3/head","repo_id":7,"sha":"NEW"},"flow":1},"repository":{"id":7,"full_name":"acme/app"},"sender":{"id":1,"login":"reader"}}`, 202, ""},
	{"GITEA", "push", `{"ref":"refs/for/main","before":"OLD","after":"NEW","number":"x","repository":{"id":7}}`, 202, ""},
	{"GITLAB", "", `{"object_kind":"pipeline","user":"x","project":{"id":7,"default_branch":[]},"object_attributes":[]}`, 202, ""},
	{"GITLAB", "", `{"object_kind":"push","ref":["x"]}`, 400, ""},
	{"BITBUCKET", "repo:push", `{"repository":{"uuid":"{7}","mainbranch":"main"},"push":{"changes":[null,{"new":null,"old":{"type":"branch","name":"a","target":null}}]}}`, 202, ""},
	{"AZURE", "", `{"eventType":"git.push","subscriptionId":{},"resource":{"repository":{"id":"7","name":"My Repo","defaultBranch":7,"project":{"id":[],"name":"My Project"},"remoteUrl":"https://acme@dev.azure.com/acme/My%20Project/_git/My%20Repo"},"pullRequestId":"x","createdBy":"x","refUpdates":[{"name":"refs/heads/main","oldObjectId":"OLD","newObjectId":"NEW"}]}}`, 202, ""},
	{"AZURE", "", `{"eventType":"workitem.created","resource":7}`, 202, ""},
	{"PLAIN", "", `{"event":"push","repoUrl":"https://git.example/a/b.git","branch":"refs/heads/main","commit":"NEW","before":"OLD","changedFiles":["README.md"],"tag":7}`, 202, ""},
	{"PLAIN", "", `{"event":"push","repoUrl":7}`, 400, ""},
	{"POST", "/workflow/github/{id}", `{"ref":"refs/heads/main"}`, 401, "X-Hub-Signature-256: sha256=00"},
}

// hooked is an integration that receives deliveries.
type hooked struct{ provider, flavor, path, event, id, secret string }

// integrations creates an integration of each forge, by the name that seeds give it. No request in the
// test makes the server call one.
func (o *fuzzer) integrations() map[string]hooked {
	t, l := o.lab.t, o.lab
	t.Helper()
	_, token, _ := strings.Cut(o.ours.auth["administrator"], " ")
	p, err := l.identity.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	org, err := l.identity.Organization(t.Context(), p, o.ours.names["org"])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]hooked{
		"GITHUB":    {provider: vcs.ProviderGitHub, path: "/workflow/github/", event: "X-GitHub-Event"},
		"GITLAB":    {provider: vcs.ProviderGitLab, path: "/workflow/gitlab/"},
		"BITBUCKET": {provider: vcs.ProviderBitbucket, path: "/workflow/bitbucket/", event: "X-Event-Key"},
		"AZURE":     {provider: vcs.ProviderAzure, path: "/workflow/azure-devops/"},
		"GITEA":     {provider: vcs.ProviderCustom, flavor: vcs.FlavorGitea, path: "/workflow/gitea/", event: "X-Gitea-Event"},
		"PLAIN":     {provider: vcs.ProviderCustom, flavor: vcs.FlavorGit, path: "/workflow/generic-vcs"},
	}
	for name, h := range all {
		c := integrations.Change{Name: new(name), Token: new("token"), Owner: new("acme")}
		if h.flavor != "" {
			c.Flavor, c.BaseURL = new(h.flavor), new("https://git.example")
		}
		made, secret, err := l.forges.Create(t.Context(), p, org, h.provider, c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h.id, h.secret = made.ID, secret
		all[name] = h
	}
	return all
}

// sign returns the headers of an authentic delivery.
func (h hooked) sign(kind string, body []byte) http.Header {
	mac := hex.EncodeToString(signing.MAC([]byte(h.secret), body))
	header := http.Header{}
	for name, value := range map[string]string{
		"X-Hub-Signature-256": "sha256=" + mac, "X-Hub-Signature": "sha256=" + mac, "X-Gitea-Signature": mac, "X-Gitlab-Token": h.secret,
		"X-Generic-Vcs-Signature": "v1=" + mac, "X-Generic-Vcs-Integration-Id": h.id,
		"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+h.secret)), h.event: kind,
	} {
		if name != "" {
			header.Set(name, value)
		}
	}
	return header
}

// sow sends all seeds, and each of them once more with another value in its body. Those of them that are
// unchanged must get their status.
func (o *fuzzer) sow() {
	hooks := o.integrations()
	for _, s := range seeds {
		for _, changed := range []bool{false, true} {
			body := strings.NewReplacer("OLD", strings.Repeat("b", 40), "NEW", strings.Repeat("a", 40)).Replace(s.body)
			if changed {
				if body = o.change(body); body == "" {
					continue
				}
			}
			method, path, header := s.method, s.path, http.Header{"Authorization": {o.ours.auth["administrator"]}}
			if h, ok := hooks[s.method]; ok {
				method, path, header = "POST", h.path, h.sign(s.path, []byte(body))
				if strings.HasSuffix(path, "/") {
					path += h.id
				}
			}
			for name, value := range o.ours.names {
				path = strings.ReplaceAll(path, "{"+name+"}", value)
			}
			if name, value, found := strings.Cut(s.header, ": "); found {
				header.Set(name, value)
			}
			want := s.status
			if changed {
				want = 0
			}
			o.send(method, path, strings.NewReader(body), []byte(body), header, want)
		}
	}
}

// change replaces a random value in a JSON document. It returns "" if it cannot.
func (o *fuzzer) change(body string) string {
	var tree any
	if json.Unmarshal([]byte(body), &tree) != nil {
		return ""
	}
	var set []func(any)
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(node)) {
				set = append(set, func(v any) { node[name] = v })
				walk(node[name])
			}
		case []any:
			for i, value := range node {
				set = append(set, func(v any) { node[i] = v })
				walk(value)
			}
		}
	}
	walk(tree)
	if len(set) == 0 {
		return ""
	}
	one(o, set...)(json.RawMessage(o.value(2)))
	changed, err := json.Marshal(tree)
	if err != nil {
		return "" // not all values are valid JSON
	}
	return string(changed)
}

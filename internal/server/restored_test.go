package server

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// outside is what a server reaches: a receiver of webhooks, and a forge.
type outside struct {
	hooks, forge *httptest.Server

	mu       sync.Mutex
	requests []string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{}
	handler := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.requests = append(o.requests, name+" "+r.URL.Path)
			if name == "forge" {
				http.Error(w, "{}", http.StatusNotFound)
			}
		})
	}
	o.hooks, o.forge = httptest.NewServer(handler("hook")), httptest.NewTLSServer(handler("forge"))
	t.Cleanup(o.hooks.Close)
	t.Cleanup(o.forge.Close)
	return o
}

func (o *outside) got() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

// installation is one with two organizations, acme and beta, that is backed up and restored.
type installation struct {
	*testing.T
	server *Server
	dir    string
	pools  map[string]string // tokens by organization
}

func (i *installation) post(path, body string) string {
	i.Helper()
	return call(i.T, i.server, i.dir, http.MethodPost, path, body)
}

// status returns the status of a request with a token.
func (i *installation) status(method, path, token, body string, header ...string) (int, []byte) {
	i.Helper()
	ctx, cancel := context.WithTimeout(i.Context(), time.Minute)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, method, i.server.URL()+path, strings.NewReader(body)))(i.T)
	req.Header.Set("Authorization", "token "+token)
	for n := 0; n < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	res := must.Get(http.DefaultClient.Do(req))(i.T)
	defer res.Body.Close()
	return res.StatusCode, must.Get(io.ReadAll(res.Body))(i.T)
}

// claim polls as an agent of an organization, which the server may hold. It returns no job if the server has none.
func (i *installation) claim(org string) (job protocol.PollResponse, ok bool) {
	i.Helper()
	code, body := i.status(http.MethodGet, "/api/deployments/poll", i.pools[org], "",
		protocol.HeaderAgentID, "agent-"+org, protocol.HeaderAgentSession, "session", protocol.HeaderPrefer, "wait=2")
	switch code {
	case http.StatusOK:
		must.OK(i.T, json.Unmarshal(body, &job))
		return job, true
	case http.StatusNoContent:
		return job, false
	}
	i.Fatalf("a poll of %s: %d %s", org, code, body)
	return job, false
}

func (i *installation) heartbeat(job protocol.PollResponse, phase protocol.Phase) int {
	i.Helper()
	code, _ := i.status(http.MethodPost, "/api/workflow/jobs/"+job.JobID+"/heartbeat", job.JobToken, fmt.Sprintf(`{"phase": %q}`, phase))
	return code
}

// stack creates a stack with settings.
func (i *installation) stack(org, name string) (path string) {
	i.Helper()
	i.post("/api/stacks/"+org+"/proj", fmt.Sprintf(`{"stackName": %q}`, name))
	path = "/api/stacks/" + org + "/proj/" + name
	call(i.T, i.server, i.dir, http.MethodPut, path+"/deployments/settings", `{"sourceContext": {"git": {"repoURL": "https://git.test/r.git", "branch": "main"}}}`)
	return path
}

// deploy queues a deployment and returns its id.
func (i *installation) deploy(stack string) string {
	i.Helper()
	var d struct{ ID string }
	must.OK(i.T, json.Unmarshal([]byte(i.post(stack+"/deployments", `{"operation": "update"}`)), &d))
	return d.ID
}

func (i *installation) deployment(stack, id string) (d struct{ Status, Reason string }) {
	i.Helper()
	must.OK(i.T, json.Unmarshal([]byte(call(i.T, i.server, i.dir, http.MethodGet, stack+"/deployments/"+id, "")), &d))
	return d
}

// administer runs an operation of the command line.
func (i *installation) administer(cfg config.Config, work func(c admin.Caller)) {
	i.Helper()
	caller, closeCaller, err := Administer(i.Context(), cfg, "v1", "", storetest.Log())
	must.OK(i.T, err)
	defer func() { must.OK(i.T, closeCaller()) }()
	work(caller)
}

// pend makes work due that a server does by itself.
func (i *installation) pend(o *outside) {
	i.Helper()
	i.post("/api/orgs/acme/hooks", fmt.Sprintf(`{"name": "hook", "displayName": "hook", "payloadUrl": %q}`, o.hooks.URL))
	stack := i.stack("acme", "pending")
	i.deploy(stack) // an event for the webhook
	i.post(stack+"/deployments/schedules", `{"scheduleCron": "* * * * *", "request": {"operation": "update", "inheritSettings": true}}`)
	i.post(stack+"/deployments/drift/schedules", `{"scheduleCron": "* * * * *"}`)
	i.post(stack+"/deployments/ttl/schedules", `{"timestamp": "2100-01-01T00:00:00Z"}`)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.forge.Certificate().Raw})
	var forge struct{ ID string }
	must.OK(i.T, json.Unmarshal([]byte(i.post("/api/console/orgs/acme/integrations/custom", string(must.Get(json.Marshal(map[string]any{
		"name": "forge", "flavor": "gitea", "baseUrl": o.forge.URL, "accessToken": "secret-of-forge", "caCertificate": string(authority),
		"repositories": []map[string]string{{"name": "team/infra"}},
	}))(i.T)))), &forge))
	watching := i.stack("acme", "watching")
	call(i.T, i.server, i.dir, http.MethodPut, watching+"/deployments/settings", `{"vcs": {"provider": "custom", "repository": "team/infra", "deployCommits": true}}`)

	const commit = "1111111111111111111111111111111111111111"
	past := time.Now().Add(-time.Minute)
	must.OK(i.T, i.server.db.Write(i.Context(), scope.Server(), func(tx *store.Tx) error {
		if _, err := tx.Exec("UPDATE schedules SET next_at = $1, try_at = $1", past); err != nil {
			return err
		}
		org, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		if err := tx.InsertRepo(store.VCSRepo{ID: "repo", IntegrationID: forge.ID, RemoteID: "7", Name: "team/web", CloneURL: o.forge.URL + "/team/web.git", PollAt: past, CreatedAt: past}); err != nil {
			return err
		}
		if err := tx.InsertVCSEvent(store.VCSEvent{
			ID: "event", OrgID: org.ID, IntegrationID: forge.ID, RepoID: "repo", RepoName: "team/web", DeliveryID: "delivery", Source: "webhook", Kind: "push",
			Subject: "refs/heads/main", AfterID: commit, Document: `{"Kind": "push", "Ref": "refs/heads/main", "After": "` + commit + `", "Repo": {"ID": "7", "Name": "team/web"}}`, ReceivedAt: past, TryAt: past,
		}); err != nil {
			return err
		}
		if err := tx.InsertVCSReport(store.VCSReport{ID: "report", IntegrationID: forge.ID, RepoID: "repo", CommitID: commit, Context: "pulumi", Wanted: 1, WantedAt: past, TryAt: past}); err != nil {
			return err
		}
		return tx.InsertReviewStack(store.ReviewStack{
			ID: "review", OrgID: org.ID, IntegrationID: forge.ID, RepoID: "repo", Pull: 7, TemplateID: "template", Project: "proj", Name: "pr-7",
			Wanted: true, CommitID: commit, TryAt: past, CreatedAt: past,
		})
	}))
}

// untouched returns which parts of the pending work no server has begun.
func (i *installation) untouched() (names []string) {
	i.Helper()
	questions := map[string]string{
		"schedules":    "SELECT COUNT(*) FROM schedules WHERE last_at = 0",
		"webhook":      "SELECT COUNT(*) FROM webhook_deliveries WHERE attempts = 0",
		"forge event":  "SELECT COUNT(*) FROM vcs_events WHERE id = 'event' AND done = 0 AND tries = 0",
		"forge report": "SELECT COUNT(*) FROM vcs_reports WHERE id = 'report' AND sent = 0 AND failures = 0",
		"forge poll":   "SELECT COUNT(*) FROM vcs_watches WHERE failures = 0 AND repo_id = ''",
		"review stack": "SELECT COUNT(*) FROM review_stacks WHERE id = 'review' AND try_at < created_at + 1000000",
	}
	must.OK(i.T, i.server.db.Read(i.Context(), func(tx *store.Tx) error {
		names = nil
		for name, query := range questions {
			n, err := database.Scalar[int64](tx.Tx, query)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if n > 0 {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return nil
	}))
	return names
}

// update updates a stack as the CLI on a laptop does.
func (i *installation) update(stack string) {
	i.Helper()
	var made, started struct{ UpdateID, Token string }
	must.OK(i.T, json.Unmarshal([]byte(i.post(stack+"/update", `{"name": "proj", "runtime": "yaml", "config": {}, "options": {}}`)), &made))
	update := stack + "/update/" + made.UpdateID
	must.OK(i.T, json.Unmarshal([]byte(i.post(update, `{}`)), &started))
	req := must.Get(http.NewRequestWithContext(i.Context(), http.MethodPost, i.server.URL()+update+"/complete", strings.NewReader(`{"status": "succeeded"}`)))(i.T)
	req.Header.Set("Authorization", "update-token "+started.Token)
	res := must.Get(http.DefaultClient.Do(req))(i.T)
	_ = res.Body.Close()
	if res.StatusCode >= 300 {
		i.Errorf("the end of an update is answered with %s", res.Status)
	}
}

// TestRestoredServerWaits restores an installation with everything due that a server does by itself, and with agents that
// poll and run jobs. Before its release it sends nothing, hands out nothing and starts nothing, while clients can use its
// states, and while jobs of the backup report their ends. The release of an organization releases its queue alone.
func TestRestoredServerWaits(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	configOf := func(name string) config.Config {
		return must.Get(config.Load(config.LoadOptions{Cwd: base, Flags: map[string]string{
			"listen": "127.0.0.1:0", "data_dir": filepath.Join(base, name), "organization": "acme", "outbound_networks": "127.0.0.0/8",
		}}))(t)
	}
	o := newOutside(t)
	i := &installation{T: t, dir: filepath.Join(base, "first"), pools: map[string]string{}}
	cfg := configOf("first")
	i.server = must.Get(New(t.Context(), cfg, "v1", storetest.Log(), io.Discard))(t)
	i.server.Only() // everything remains due
	stop := run(t, i.server)
	i.administer(cfg, func(c admin.Caller) {
		must.Get(admin.CreateOrganization.Do(t.Context(), c, admin.NewOrganization{Name: "beta", Admin: identity.AdminLogin}))(t)
	})
	for _, org := range []string{"acme", "beta"} {
		var pool struct{ ID, TokenValue string }
		must.OK(t, json.Unmarshal([]byte(i.post("/api/orgs/"+org+"/agent-pools", `{"name": "pool"}`)), &pool))
		i.pools[org] = pool.TokenValue
	}
	started, claimed, later, dev, other := i.stack("acme", "started"), i.stack("acme", "claimed"), i.stack("acme", "later"), i.stack("acme", "dev"), i.stack("beta", "dev")
	take := func(stack string) (string, protocol.PollResponse) {
		id := i.deploy(stack)
		job, ok := i.claim("acme")
		if !ok || job.DeploymentID != id {
			t.Fatalf("the agent got %+v instead of the deployment of %s", job, stack)
		}
		return id, job
	}
	startedID, startedJob := take(started)
	if code := i.heartbeat(startedJob, protocol.PhaseStarting); code != http.StatusOK {
		t.Fatalf("a start is answered with %d", code)
	}
	claimedID, claimedJob := take(claimed)
	i.pend(o)
	backups := admin.NewBackup{Dir: filepath.Join(base, "backups")}
	i.administer(cfg, func(c admin.Caller) { must.Get(admin.WriteBackup.Do(t.Context(), c, backups))(t) })
	// After the backup, the queued deployment of the backup is cancelled, and another one is claimed and started.
	call(t, i.server, i.dir, http.MethodPost, "/api/stacks/acme/proj/pending/deployments/1/cancel", "")
	_, laterJob := take(later)
	for _, job := range []protocol.PollResponse{claimedJob, laterJob} {
		if code := i.heartbeat(job, protocol.PhaseStarting); code != http.StatusOK {
			t.Fatalf("a start is answered with %d", code)
		}
	}
	token := must.Get(os.ReadFile(filepath.Join(i.dir, "admin-token")))(t)
	key := must.Get(os.ReadFile(filepath.Join(i.dir, "master-key")))(t)
	must.OK(t, stop())
	if got := o.got(); len(got) > 0 {
		t.Fatalf("the first server has sent %q", got)
	}

	cfg, i.dir = configOf("restored"), filepath.Join(base, "restored")
	must.OK(t, os.Mkdir(i.dir, 0o700))
	must.OK(t, os.WriteFile(filepath.Join(i.dir, "master-key"), key, 0o600))
	must.Get(Restore(t.Context(), cfg, "v1", RestoreRequest{Dir: backups.Dir}, storetest.Log()))(t)
	must.OK(t, os.WriteFile(filepath.Join(i.dir, "admin-token"), token, 0o600)) // as kept by the administrator
	i.server = must.Get(New(t.Context(), cfg, "v1", storetest.Log(), io.Discard))(t)
	all := i.untouched()
	if len(all) != 6 {
		t.Fatalf("only %q are due", all)
	}
	stop = run(t, i.server)
	defer func() { must.OK(t, stop()) }()
	devID, otherID := i.deploy(dev), i.deploy(other)
	quiet := func(when string, orgs ...string) {
		t.Helper()
		for _, org := range orgs {
			if job, ok := i.claim(org); ok {
				t.Errorf("%s, the agent of %s gets %+v", when, org, job)
			}
		}
		if left := i.untouched(); !slices.Equal(left, all) {
			t.Errorf("%s, only %q still wait, of %q", when, left, all)
		}
		if got := o.got(); len(got) > 0 {
			t.Errorf("%s, the server has sent %q", when, got)
		}
	}
	quiet("before the release", "acme", "beta")
	i.update(dev)
	if code, body := i.status(http.MethodPost, "/api/orgs/acme/deployments/resume", strings.TrimSpace(string(token)), ""); code != http.StatusConflict || !strings.Contains(string(body), "restore release acme") {
		t.Errorf("a resume is answered with %d %s", code, body)
	}

	// The jobs of the backup run. That of a later claim is unknown.
	for _, job := range []protocol.PollResponse{startedJob, claimedJob} {
		if code := i.heartbeat(job, protocol.PhaseRunning); code != http.StatusOK {
			t.Errorf("a heartbeat of a job of the backup is answered with %d", code)
		}
		if code, body := i.status(http.MethodPost, "/api/workflow/jobs/"+job.JobID+"/result", job.JobToken, `{"status": "succeeded", "finishedAt": "2026-11-29T14:10:00Z", "steps": []}`); code != http.StatusOK {
			t.Errorf("the result of a job of the backup is answered with %d %s", code, body)
		}
	}
	if code := i.heartbeat(laterJob, protocol.PhaseRunning); code != http.StatusUnauthorized {
		t.Errorf("a heartbeat of an unknown job is answered with %d", code)
	}
	for stack, id := range map[string]string{started: startedID, claimed: claimedID} {
		if d := i.deployment(stack, id); d.Status != "succeeded" {
			t.Errorf("the deployment of %s is %+v", stack, d)
		}
	}
	if d := i.deployment("/api/stacks/acme/proj/pending", "1"); d.Status != "skipped" || d.Reason != "cancelled" {
		t.Errorf("the queued deployment is %+v", d)
	}
	quiet("after the results", "acme", "beta")

	release := func(org string) {
		t.Helper()
		i.administer(cfg, func(c admin.Caller) {
			must.Get(admin.ReleaseRestored.Do(t.Context(), c, admin.ReleaseOf{Organization: org}))(t)
		})
	}
	release("acme")
	if job, ok := i.claim("acme"); !ok || job.DeploymentID != devID {
		t.Errorf("after its release, acme's agent gets %+v, %t", job, ok)
	}
	quiet("after the release of acme", "beta")
	release("beta")
	if job, ok := i.claim("beta"); !ok || job.DeploymentID != otherID {
		t.Errorf("after its release, beta's agent gets %+v, %t", job, ok)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for left := all; len(left) > 0; left = i.untouched() {
		if time.Now().After(deadline) {
			t.Fatalf("after the release, %q still wait", left)
		}
		<-time.After(50 * time.Millisecond)
	}
	sent := strings.Join(o.got(), "\n")
	for _, to := range []string{"hook /", "forge /"} {
		if !strings.Contains(sent, to) {
			t.Errorf("after the release, the server has sent nothing to the %s: %s", to, sent)
		}
	}
}

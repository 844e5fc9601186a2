package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func sqlite(t *testing.T) *store.DB { return storetest.SQLite(t) }

func TestCreateRefusesBadInput(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	for body, text := range map[string]string{
		`{}`:                    "Missing top level required field 'operation'",
		`{"operation":"up"}`:    "unknown operation",
		`{"operation":7}`:       "operation",
		`[]`:                    "JSON",
		`{"operation":"update"`: "JSON",
		`{"operation":"update","operationContext":{"operation":"update"}}`:                                        "'operation' must only be set at the top level",
		`{"operation":"update","agentPoolID":"nope"}`:                                                             "agent pool",
		`{"operation":"update","sourceContext":{"git":{"branch":"a","commit":"abcdef1"}}}`:                        "branch or commit",
		`{"operation":"update","sourceContext":{"git":{"commit":"--x"}}}`:                                         "commit",
		`{"operation":"update","inheritSettings":false,"sourceContext":{"git":{"branch":"a"}}}`:                   "repoUrl",
		`{"operation":"update","operationContext":{"oidc":{"aws":{"roleArn":"a"}}}}`:                              "sessionName",
		`{"operation":"update","sourceContext":{"template":{"sourceUrl":"registry://x"}}}`:                        "templates",
		`{"operation":"update","sourceContext":{"git":{"repoUrl":"https://h/x"}},"inheritSettings":"yes please"}`: "inheritSettings",
	} {
		l.do("POST", path, body).want(400, nil).says(text)
	}
	l.do("POST", "/api/stacks/acme/proj/none/deployments", `{"operation":"update"}`).want(404, nil)
	var list struct{ Total int }
	l.do("GET", path, nil).want(200, &list)
	if list.Total != 0 {
		t.Errorf("%d deployments were created", list.Total)
	}
	l.do("GET", path+"?pageSize=0", nil).want(400, nil)
	l.do("GET", path+"?page=x", nil).want(400, nil)
	l.do("GET", path+"/nope", nil).want(404, nil)
	l.do("GET", path+"/version/7", nil).want(404, nil)
	l.do("GET", path+"/version/x", nil).want(404, nil)
	l.do("POST", path+"/nope/cancel", nil).want(404, nil)
	l.do("GET", path+"/nope/logs", nil).want(404, nil)
}

func TestWhatTheStockCLISends(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		l.do("POST", path+"/settings", `{"operationContext":{"environmentVariables":{"A":"1","S":{"secret":"hunter2"}},"preRunCommands":["inherited"]}}`).want(200, nil)
		var made struct{ ID string }
		l.send(call{
			Method: "POST", Path: path, Header: map[string]string{"X-Pulumi-Deployment-Initiator": "automation-api"},
			Body: `{"operation":"update","inheritSettings":true,"executorContext":{"workingDirectory":""},"agentPoolID":null,
				"sourceContext":{"git":{"repoUrl":"https://example.com/a/b.git","branch":"","commit":"abcdef1","repoDir":""}},
				"operationContext":{"preRunCommands":null,"operation":"","environmentVariables":{"B":"2"}},"unknown":{}}`,
		}).want(202, &made)
		d := l.details(path, made.ID)
		if d.Status != "not-started" || d.Initiator != "automation-api" || d.AgentPool == nil || d.AgentPool.ID != l.pool || d.Jobs != nil ||
			!d.InheritSettings || d.Paused || d.Updates == nil {
			t.Errorf("details = %+v", d)
		}
		l.do("POST", path+"/pause", nil).want(200, nil)
		var alone struct{ ID string }
		l.do("POST", path, `{"operation":"update","inheritSettings":false,"sourceContext":{"git":{"repoUrl":"https://h/x","branch":"b"}}}`).want(202, &alone)
		if d := l.details(path, alone.ID); d.InheritSettings || !d.Paused {
			t.Errorf("details of a deployment without the settings, on a paused stack = %+v", d)
		}
		l.do("POST", path+"/resume", nil).want(200, nil)
		if g := d.Configuration.Source.Git; g.Commit != "abcdef1" || g.Branch != "" {
			t.Errorf("source = %+v", g)
		}
		job, jc := l.claim("a")
		def, err := jc.Definition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if def.Env["A"] != "1" || def.Env["B"] != "2" || def.Env["S"] != "hunter2" {
			t.Errorf("environment = %v", def.Env)
		}
		if diff := strings.Join(def.SecretEnv, ","); diff != "PULUMI_ACCESS_TOKEN,S" {
			t.Errorf("secretEnv = %s", diff)
		}
		if def.Env["PULUMI_BACKEND_URL"] != "http://server.test" || def.Deployment.BackendURL != "http://server.test" ||
			def.Env["PULUMI_CI_BUILD_ID"] != made.ID || def.Architecture != "arm64" || def.Image.Reference != deployments.DefaultImage {
			t.Errorf("definition = %+v", def)
		}
		if len(def.Deployment.PreRunCommands) != 1 || def.Steps[len(def.Steps)-1].Name != "pulumi update" {
			t.Errorf("steps = %+v", def.Steps)
		}
		if job.Epoch != 1 || job.TypeSpecificID != made.ID || job.WorkflowType != workflow.TypeDeployment {
			t.Errorf("claim = %+v", job)
		}
		token := "token " + def.Env["PULUMI_ACCESS_TOKEN"]
		l.send(call{Method: "GET", Path: "/api/stacks/acme/proj/dev", Auth: token}).want(200, nil)
		l.send(call{Method: "POST", Path: path, Auth: token, Body: `{"operation":"update"}`}).want(403, nil)
		l.send(call{Method: "PUT", Path: path + "/settings", Auth: token, Body: `{}`}).want(403, nil)
		l.end(jc, workflow.StatusFailed)
		l.send(call{Method: "GET", Path: "/api/stacks/acme/proj/dev", Auth: token}).want(401, nil)
	})
}

func TestListsAndMetadata(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		one, two := l.deployable("one"), l.deployable("two")
		for range 3 {
			l.deploy(one, "update")
		}
		last := l.deploy(two, "preview")
		var list struct {
			Deployments []struct {
				ID, StackName, ProjectName, PulumiOperation string
				Version                                     int
				Paused                                      bool
			}
			ItemsPerPage, Total int
		}
		l.do("GET", one+"?page=2&pageSize=2", nil).want(200, &list)
		if list.Total != 3 || list.ItemsPerPage != 2 || len(list.Deployments) != 1 || list.Deployments[0].Version != 1 {
			t.Errorf("second page = %+v", list)
		}
		l.do("GET", one+"?asc=true&sort=version", nil).want(200, &list)
		if list.Deployments[0].Version != 1 || list.Deployments[2].Version != 3 {
			t.Errorf("ascending = %+v", list)
		}
		l.do("GET", "/api/orgs/acme/deployments", nil).want(200, &list)
		if list.Total != 4 || list.Deployments[0].ID != last || list.Deployments[0].StackName != "two" || list.Deployments[0].ProjectName != "proj" {
			t.Errorf("of the organization = %+v", list)
		}
		l.do("POST", one+"/pause", nil).want(200, nil)
		var m map[string]any
		l.do("GET", one+"/metadata", nil).want(200, &m)
		if m["paused"] != true || m["stackPaused"] != true || m["organizationPaused"] != false {
			t.Errorf("metadata = %v", m)
		}
		l.do("GET", "/api/orgs/acme/deployments/metadata", nil).want(200, &m)
		if fmt.Sprint(m["pausedStacks"]) != "[proj/one]" || m["concurrency"] != float64(deployments.DefaultCap) {
			t.Errorf("metadata = %v", m)
		}
		fresh := l.stack("fresh") + "/deployments"
		l.do("POST", fresh+"/pause", nil).want(400, nil).says("before it has been configured")
		if d := l.details(one, func() string {
			var v struct{ ID string }
			l.do("GET", one+"/version/2", nil).want(200, &v)
			return v.ID
		}()); d.Version != 2 || !strings.Contains(d.Message, "paused") {
			t.Errorf("version 2 = %+v", d)
		}
	})
}

func TestPools(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		base := "/api/orgs/acme/agent-pools"
		l.do("POST", base, `{"name":" "}`).want(400, nil)
		id, token := l.newPool("second")
		l.do("PATCH", base+"/"+id, `{"description":"d"}`).want(200, nil)
		var got struct {
			Name, Description string
			Agents            []struct{ ID, Hostname, IP, PID, Platform, Version, Status string }
		}
		l.do("GET", base+"/"+id, nil).want(200, &got)
		if got.Name != "second" || got.Description != "d" || len(got.Agents) != 0 {
			t.Errorf("pool = %+v", got)
		}
		l.do("GET", base+"/nope", nil).want(404, nil)
		if _, err := l.client.Poll(t.Context(), token, l.request("a", 0)); err != nil {
			t.Fatal(err)
		}
		l.do("GET", base+"/"+id, nil).want(200, &got)
		if len(got.Agents) != 1 || got.Agents[0].Hostname != "host-a" || got.Agents[0].PID != "7" || got.Agents[0].Status != "online" ||
			got.Agents[0].Platform != "linux/arm64" || got.Agents[0].IP != "127.0.0.1" || got.Agents[0].Version != "v1.2.3" {
			t.Errorf("agents = %+v", got.Agents)
		}
		// No stack names the pool, so it can be deleted together with its token.
		l.do("DELETE", base+"/"+id, nil).want(204, nil)
		_, err := l.client.Poll(t.Context(), token, l.request("a", 0))
		wantCode(t, "a poll with the token of a deleted pool", err, 401)

		// A pool in use is deleted only with force. Its stacks then use the default pool, and
		// running jobs continue.
		running := l.deployable("running")
		l.deploy(running, "update")
		_, jc := l.start("a")
		path := l.deployable("dev")
		dep := l.deploy(path, "update")
		l.do("DELETE", base+"/"+l.pool, nil).want(400, nil).says("Agent pool is in use").says("to leave the organization without a default pool")
		l.do("DELETE", base+"/"+l.pool+"?force=true", nil).want(204, nil)
		l.end(jc, workflow.StatusSucceeded)
		if a := l.do("GET", path+"/settings", nil).want(200, nil); strings.Contains(string(a.Body), "agentPoolID") {
			t.Errorf("settings still name the pool: %s", a.Body)
		}
		if d := l.details(path, dep); !strings.Contains(d.Message, "No agent pool") || d.AgentPool != nil {
			t.Errorf("the waiting deployment = %+v", d)
		}
		var page logPage
		l.do("GET", path+"/"+dep+"/logs", nil).want(200, &page)
		if len(page.Lines) != 2 || page.NextToken == "" || !strings.Contains(page.Lines[1].Line, "No agent pool") {
			t.Errorf("the log of a deployment without a pool = %+v", page)
		}
		l.do("PATCH", "/api/orgs/acme", `{"setDefaultAgentPoolID":"nope"}`).want(400, nil)
		l.pool, l.poolToken = l.newPool("third")
		if job, _ := l.claim("b"); job.TypeSpecificID != dep {
			t.Errorf("claimed %s, want %s", job.TypeSpecificID, dep)
		}
		var pools struct {
			AgentPools []struct {
				ID        string
				IsDefault bool
				Status    string
			}
			DefaultAgentPoolID string
		}
		l.do("GET", base, nil).want(200, &pools)
		if len(pools.AgentPools) != 1 || !pools.AgentPools[0].IsDefault || pools.DefaultAgentPoolID != l.pool || pools.AgentPools[0].Status != "online" {
			t.Errorf("pools = %+v", pools)
		}
		l.do("POST", base, `{"name":" third"}`).want(409, nil).says("already has an agent pool named 'third'")
		id, _ = l.newPool("fourth")
		l.do("PATCH", base+"/"+id, `{"name":"third"}`).want(409, nil)
		l.do("GET", base, nil).want(200, &pools)
		if pools.DefaultAgentPoolID != l.pool {
			t.Errorf("the second pool replaced the default: %+v", pools)
		}
	})
}

func TestDeploymentWithoutPoolGetsOneFromItsSettings(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	l.do("PATCH", "/api/orgs/acme", `{"setDefaultAgentPoolID":""}`).want(200, nil)
	path := l.stack("dev") + "/deployments"
	id := l.deploy(path, "update")
	if d := l.details(path, id); !strings.Contains(d.Message, "--runner-pool "+l.pool+" --stack acme/proj/dev") {
		t.Errorf("message = %q", d.Message)
	}
	got := make(chan string, 1)
	go func() {
		res, err := l.client.Poll(t.Context(), l.poolToken, l.request("a", 20*time.Second))
		if err != nil || res.Job == nil {
			got <- fmt.Sprint("no job: ", err)
			return
		}
		got <- res.Job.TypeSpecificID
	}()
	l.do("POST", path+"/settings", `{"agentPoolID":"`+l.pool+`"}`).want(200, nil)
	if claimed := <-got; claimed != id {
		t.Errorf("claimed %s, want %s", claimed, id)
	}
}

func TestCancel(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		queued, claimed := l.deploy(path, "update"), l.deploy(path, "update")
		for range 2 {
			l.do("POST", path+"/"+queued+"/cancel", nil).want(200, nil)
		}
		if d := l.details(path, queued); d.Status != "skipped" || d.Reason != "cancelled" {
			t.Errorf("cancelled while queued: %+v", d)
		}
		_, jc := l.claim("a")
		l.do("POST", path+"/"+claimed+"/cancel", nil).want(200, nil)
		if d := l.details(path, claimed); d.Status != "failed" || d.Reason != "cancelled" {
			t.Errorf("cancelled before its start: %+v", d)
		}
		_, err := jc.Heartbeat(t.Context(), protocol.PhaseStarting)
		wantCode(t, "fetching the definition after a cancellation", err, 410)
		l.end(jc, workflow.StatusFailed) // a retry

		running := l.deploy(path, "update")
		_, jc = l.start("a")
		for range 3 {
			l.do("POST", path+"/"+running+"/cancel", nil).want(200, nil)
		}
		hb, err := jc.Heartbeat(t.Context(), protocol.PhaseRunning)
		if err != nil || !hb.CancelRequested || hb.ForceRequested {
			t.Errorf("after three requests: %+v, %v", hb, err)
		}
		if d := l.details(path, running); d.Status != "running" || !d.CancelRequested {
			t.Errorf("a cancelled deployment that still runs: %+v", d)
		}
		l.do("POST", path+"/"+running+"/cancel?force=true", nil).want(200, nil)
		l.do("POST", path+"/"+running+"/cancel?force=maybe", nil).want(400, nil)
		if hb, err = jc.Heartbeat(t.Context(), protocol.PhaseRunning); err != nil || !hb.ForceRequested {
			t.Errorf("after force: %+v, %v", hb, err)
		}
		// The job succeeds despite the cancellation, and its status is succeeded.
		l.end(jc, workflow.StatusSucceeded)
		if d := l.details(path, running); d.Status != "succeeded" || d.Reason != "" {
			t.Errorf("cancelled too late: %+v", d)
		}
		l.do("POST", path+"/"+running+"/cancel", nil).want(200, nil)
		if d := l.details(path, running); d.Status != "succeeded" {
			t.Errorf("a final status changed: %+v", d)
		}

		finished := l.deploy(path, "update")
		_, jc = l.start("a")
		l.end(jc, workflow.StatusFailed)
		l.do("POST", path+"/"+finished+"/cancel", nil).want(409, nil).says("already finished")
		if d := l.details(path, finished); d.Status != "failed" || d.CancelRequested {
			t.Errorf("cancelled after its end: %+v", d)
		}
	})
}

func TestQueueRules(t *testing.T) {
	eachLab(t, deployments.Options{Cap: 2}, func(t *testing.T, l *lab) {
		one, two, three := l.deployable("one"), l.deployable("two"), l.deployable("three")
		first, second := l.deploy(one, "update"), l.deploy(one, "update")
		job, jc := l.start("a")
		if job.TypeSpecificID != first {
			t.Fatalf("claimed %s, want the first", job.TypeSpecificID)
		}
		l.nothing("b") // one job at a time per stack
		other := l.deploy(two, "update")
		if job, _ = l.claim("b"); job.TypeSpecificID != other {
			t.Fatal("another stack was not served")
		}
		l.deploy(three, "update")
		l.nothing("c") // the limit is reached
		l.do("POST", "/api/orgs/acme/deployments/pause", nil).want(200, nil)
		l.end(jc, workflow.StatusSucceeded)
		l.nothing("c") // paused
		got := make(chan string, 1)
		go func() {
			res, err := l.client.Poll(t.Context(), l.poolToken, l.request("c", 20*time.Second))
			if err != nil || res.Job == nil {
				got <- fmt.Sprint("no job: ", err)
				return
			}
			got <- res.Job.TypeSpecificID
		}()
		l.do("POST", "/api/orgs/acme/deployments/resume", nil).want(200, nil)
		if id := <-got; id != second {
			t.Errorf("after resume: %s, want %s", id, second)
		}
	})
}

func TestSkipIntermediateDeployments(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		l.do("POST", path+"/settings", `{"operationContext":{"options":{"skipIntermediateDeployments":true}}}`).want(200, nil)
		l.deploy(path, "update")
		_, jc := l.start("a")
		between, preview, newest := l.deploy(path, "update"), l.deploy(path, "preview"), l.deploy(path, "update")
		l.end(jc, workflow.StatusSucceeded)
		if d := l.details(path, between); d.Status != "skipped" || d.Reason != "superseded" {
			t.Errorf("intermediate = %+v", d)
		}
		for _, id := range []string{preview, newest} {
			if d := l.details(path, id); d.Status != "not-started" {
				t.Errorf("%s = %+v", id, d)
			}
		}
	})
}

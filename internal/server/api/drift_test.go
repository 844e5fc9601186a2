package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/workflow"
)

type driftUpdate struct {
	UpdateID, Modified, Status string
	ResourceChanges            map[string]int
}

type driftRun struct {
	ID, Created, Status, DeploymentID string
	DeploymentVersion                 int
	DriftDetected                     bool
	DetectUpdate, RemediateUpdate     *driftUpdate
}

type driftStatus struct {
	DriftDetected, RunInProgress bool
	LatestDriftRun               string
}

// driftPlan is what the pulumi commands of a deployment do.
type driftPlan struct {
	operation string
	remediate bool            // with the option remediateIfDriftDetected
	detect    string          // resource changes; "lost" sends no summary, "running" does not complete, "failed" fails
	update    string          // status of the update that remediates; "" starts none
	status    workflow.Status // of the deployment
	reason    workflow.Reason // of the deployment
	before    []string        // kinds of updates of pre-run commands
}

// runUpdate runs an update with a token. It sends a summary unless changes is "lost".
// The client reports the named flags.
func (l *lab) runUpdate(stack, kind, auth string, preview bool, changes, status string, flags ...string) string {
	l.t.Helper()
	prog, environment := program(), map[string]string{}
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		environment[name] = value
	}
	prog["metadata"] = map[string]any{"message": "hi", "environment": environment}
	prog["options"] = map[string]any{"dryRun": preview}
	var made struct{ UpdateID string }
	l.send(call{Method: "POST", Path: stack + "/" + kind, Body: prog, Auth: auth}).want(200, &made)
	u := update{f: l.fixture, path: stack + "/update/" + made.UpdateID}
	var started struct{ Token string }
	l.send(call{Method: "POST", Path: u.path, Body: map[string]any{}, Auth: auth}).want(200, &started)
	u.token = started.Token
	if changes != "lost" {
		u.send("POST", "/events/batch", fmt.Sprintf(`{"events":[{"sequence":0,"timestamp":1,"summaryEvent":{"resourceChanges":%s}}]}`, changes)).want(200, nil)
	}
	if status != "running" {
		u.send("POST", "/complete", map[string]any{"status": status}).want(204, nil)
	}
	return made.UpdateID
}

// runDrift runs a deployment by a plan, and returns its id and the ids of its last two updates.
func (l *lab) runDrift(stack string, p driftPlan) (id, detect, remediate string) {
	l.t.Helper()
	options := map[string]any{"options": map[string]any{"remediateIfDriftDetected": p.remediate}}
	var made struct{ ID string }
	l.do("POST", stack+"/deployments", map[string]any{"operation": p.operation, "operationContext": options}).want(202, &made)
	_, jc := l.start("agent")
	definition, err := jc.Definition(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	auth := "token " + definition.Env["PULUMI_ACCESS_TOKEN"]
	for _, kind := range p.before {
		l.runUpdate(stack, kind, auth, false, `{"create":1}`, "succeeded")
	}
	if p.detect != "" {
		changes, status := p.detect, "succeeded"
		if changes == "failed" || changes == "running" {
			changes, status = `{"update":1}`, changes
		}
		detect = l.runUpdate(stack, "refresh", auth, true, changes, status)
	}
	if p.update != "" {
		remediate = l.runUpdate(stack, "update", auth, false, `{"update":1,"same":1}`, p.update)
	}
	result := protocol.ResultRequest{Status: p.status, Reason: p.reason, FinishedAt: time.Now()}
	if err := jc.Result(l.t.Context(), result); err != nil {
		l.t.Fatalf("result: %v", err)
	}
	return made.ID, detect, remediate
}

func (l *lab) driftStatus(stack string) driftStatus {
	l.t.Helper()
	var s driftStatus
	l.do("GET", stack+"/drift/status", nil).want(200, &s)
	return s
}

// TestDriftResults checks the result of a run, and the status of the stack after it.
func TestDriftResults(t *testing.T) {
	const ok, ko, detect, remediate = workflow.StatusSucceeded, workflow.StatusFailed, "detect-drift", "remediate-drift"
	const exit = workflow.ReasonExitCode
	const none, drift = `{"same":3}`, `{"same":2,"update":1}`
	l, n := newLab(t, storetest.SQLite(t), deployments.Options{}), 0
	l.addDriftHooks()
	for name, tt := range map[string]struct {
		plan     driftPlan
		status   workflow.Status
		detected bool
		drifted  bool
		events   string // the first letters of driftHooks
	}{
		"no drift":                            {driftPlan{operation: detect, detect: none, status: ok}, ok, false, false, "S"},
		"no resources":                        {driftPlan{operation: detect, detect: `{}`, status: ok}, ok, false, false, "S"},
		"only reads":                          {driftPlan{operation: detect, detect: `{"same":1,"read":2}`, status: ok}, ok, false, false, "S"},
		"a count of zero":                     {driftPlan{operation: detect, detect: `{"same":1,"delete":0}`, status: ok}, ok, false, false, "S"},
		"drift":                               {driftPlan{operation: detect, detect: drift, status: ko, reason: exit}, ok, true, true, "SD"},
		"a deleted resource":                  {driftPlan{operation: detect, detect: `{"delete":1}`, status: ko, reason: exit}, ok, true, true, "SD"},
		"drift, then cancelled":               {driftPlan{operation: detect, detect: drift, status: ko, reason: workflow.ReasonCancelled}, ko, true, true, "FD"},
		"no drift, then an error":             {driftPlan{operation: detect, detect: none, status: ko, reason: exit}, ko, false, false, "F"},
		"detection failed":                    {driftPlan{operation: detect, detect: "failed", status: ko, reason: exit}, ko, false, false, "F"},
		"detection interrupted":               {driftPlan{operation: detect, detect: "running", status: ko, reason: workflow.ReasonOOM}, ko, false, false, "F"},
		"no detection":                        {driftPlan{operation: detect, status: ko, reason: exit}, ko, false, false, "F"},
		"no detection, but it succeeded":      {driftPlan{operation: detect, status: ok}, ko, false, false, "F"},
		"no result":                           {driftPlan{operation: detect, detect: "lost", status: ok}, ko, false, false, "F"},
		"only an update by a pre-run command": {driftPlan{operation: detect, remediate: true, before: []string{"update"}, status: ko, reason: exit}, ko, false, false, "F"},
		"an update by a pre-run command":      {driftPlan{operation: detect, remediate: true, before: []string{"update"}, detect: drift, update: "succeeded", status: ok}, ok, true, false, "SDR"},
		"remediated":                          {driftPlan{operation: detect, remediate: true, detect: drift, update: "succeeded", status: ok}, ok, true, false, "SDR"},
		"nothing to remediate":                {driftPlan{operation: detect, remediate: true, detect: none, status: ok}, ok, false, false, "S"},
		"remediation failed":                  {driftPlan{operation: detect, remediate: true, detect: drift, update: "failed", status: ko, reason: exit}, ko, true, true, "SDX"},
		"remediation not begun":               {driftPlan{operation: detect, remediate: true, detect: drift, status: ko, reason: exit}, ko, true, true, "SDX"},
		"only remediation":                    {driftPlan{operation: remediate, update: "succeeded", status: ok}, ok, false, false, "R"},
		"only remediation, failed":            {driftPlan{operation: remediate, update: "failed", status: ko, reason: exit}, ko, false, false, "X"},
	} {
		n++
		stack := strings.TrimSuffix(l.deployable(fmt.Sprint("dev", n)), "/deployments")
		id, detectID, updateID := l.runDrift(stack, tt.plan)
		var run driftRun
		l.do("GET", stack+"/drift/runs/"+id, nil).want(200, &run)
		if run.Status != string(tt.status) || run.DriftDetected != tt.detected || run.DeploymentID != id || run.DeploymentVersion != 1 {
			t.Errorf("%s: run %+v, want %s, drift %v", name, run, tt.status, tt.detected)
		}
		for what, u := range map[string]struct {
			got  *driftUpdate
			want string
		}{"detection": {run.DetectUpdate, detectID}, "remediation": {run.RemediateUpdate, updateID}} {
			if (u.got == nil) != (u.want == "") || u.got != nil && u.got.UpdateID != u.want {
				t.Errorf("%s: %s: %+v, want %q", name, what, u.got, u.want)
			}
		}
		if got, want := l.driftStatus(stack), (driftStatus{DriftDetected: tt.drifted, LatestDriftRun: id}); got != want {
			t.Errorf("%s: status %+v, want %+v", name, got, want)
		}
		if got := l.driftEvents(fmt.Sprint("dev", n)); got != tt.events {
			t.Errorf("%s: events %q, want %q", name, got, tt.events)
		}
	}
}

// driftHooks are the ids of webhooks that receive one event each.
var driftHooks = map[string]webhooks.Name{
	"S": webhooks.DriftDetectionSucceeded, "F": webhooks.DriftDetectionFailed, "D": webhooks.DriftDetected,
	"R": webhooks.DriftRemediationSucceeded, "X": webhooks.DriftRemediationFailed,
}

func (l *lab) addDriftHooks() {
	l.t.Helper()
	err := l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName("acme")
		for id, name := range driftHooks {
			if err == nil {
				err = tx.InsertWebhook(store.Webhook{
					ID: id, OrgID: org.ID, Name: id, URL: "http://127.0.0.1:1", Format: webhooks.FormatRaw, Active: true, Filters: []string{string(name)},
				})
			}
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// driftEvents returns the ids of the webhooks that receive an event of a stack, and checks the
// events' payloads.
func (l *lab) driftEvents(stack string) string {
	l.t.Helper()
	got := ""
	err := l.db.Read(l.t.Context(), func(tx *store.Tx) error {
		for _, id := range []string{"S", "F", "D", "R", "X"} {
			list, err := tx.Deliveries(id, 100)
			if err != nil {
				return err
			}
			for _, d := range list {
				var payload struct {
					StackName, Status, DriftRunID, ReferenceURL string
					DriftDetected                               *bool
					ResourceChanges                             map[string]int
				}
				if err := json.Unmarshal([]byte(d.Payload), &payload); err != nil {
					return err
				}
				if payload.StackName != stack {
					continue
				}
				got += id
				detection := strings.Contains("SFD", id)
				if detection != (payload.DriftRunID != "") || detection != (payload.DriftDetected != nil) || payload.Status == "" ||
					payload.ResourceChanges == nil || payload.ReferenceURL != "http://server.test/acme/proj/"+stack+"/deployments/1" {
					l.t.Errorf("the payload of %s is %s", driftHooks[id], d.Payload)
				}
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

// TestDriftRuns follows the runs of a stack: deployments that wait, run, end and are skipped, and
// previews of a refresh from the command line.
func TestDriftRuns(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		stack := strings.TrimSuffix(path, "/deployments")
		l.stack("other")
		if got := l.driftStatus(stack); got != (driftStatus{}) {
			t.Errorf("before the first run: %+v", got)
		}
		metadata := l.do("GET", path+"/metadata", nil).want(200, nil)
		if strings.Contains(string(metadata.Body), `"drift"`) {
			t.Errorf("metadata before the first run: %s", metadata.Body)
		}

		first, _, _ := l.runDrift(stack, driftPlan{operation: "detect-drift", detect: `{"delete":2,"same":1}`, status: workflow.StatusFailed, reason: workflow.ReasonExitCode})
		cancelled := l.deploy(path, "detect-drift")
		l.do("POST", path+"/"+cancelled+"/cancel", nil).want(200, nil)
		// A preview of an update does not detect drift, and neither it nor an update ends it.
		l.runUpdate(stack, "preview", "", true, `{"update":1}`, "succeeded")
		l.runUpdate(stack, "update", "", false, `{"update":1}`, "succeeded")
		if got, want := l.driftStatus(stack), (driftStatus{DriftDetected: true, LatestDriftRun: first}); got != want {
			t.Errorf("after a skipped run: %+v, want %+v", got, want)
		}
		failed := l.runUpdate(stack, "refresh", "", true, `{"update":1}`, "failed")
		if got := l.driftStatus(stack); !got.DriftDetected || got.LatestDriftRun != failed {
			t.Errorf("after a failed detection: %+v", got)
		}
		clean := l.runUpdate(stack, "refresh", "", true, `{"same":3}`, "succeeded")
		if got := l.driftStatus(stack); got.DriftDetected {
			t.Errorf("after a detection without drift: %+v", got)
		}

		// A refresh does not detect drift, but writes what it finds to the state.
		accepting := "/api/stacks/acme/proj/other"
		l.runUpdate(accepting, "refresh", "", false, `{"update":1}`, "succeeded")
		if got := l.driftStatus(accepting); got != (driftStatus{}) {
			t.Errorf("after a refresh: %+v", got)
		}
		l.runUpdate(accepting, "refresh", "", true, `{"update":1}`, "succeeded")
		for _, status := range []string{"failed", "succeeded"} {
			if got := l.driftStatus(accepting); !got.DriftDetected {
				t.Errorf("before a refresh that has %s: %+v", status, got)
			}
			l.runUpdate(accepting, "refresh", "", false, `{"update":1}`, status)
		}
		if got := l.driftStatus(accepting); got.DriftDetected {
			t.Errorf("after a refresh that stored what it found: %+v", got)
		}

		waiting := l.deploy(path, "remediate-drift")
		_, jc := l.start("agent")
		if got, want := l.driftStatus(stack), (driftStatus{LatestDriftRun: waiting, RunInProgress: true}); got != want {
			t.Errorf("during a run: %+v, want %+v", got, want)
		}
		l.do("GET", path+"/metadata", nil).want(200, nil).says(`"drift":{"driftDetected":false,"latestDriftRun":"` + waiting + `","runInProgress":true}`)
		l.end(jc, workflow.StatusSucceeded)

		want := []string{waiting + " succeeded", clean + " succeeded", failed + " failed", cancelled + " skipped", first + " succeeded"}
		var got []string
		for page := 1; page <= 4; page++ {
			var list struct {
				DriftRuns           []driftRun
				ItemsPerPage, Total int
			}
			l.do("GET", fmt.Sprintf("%s/drift/runs?page=%d&pageSize=2", stack, page), nil).want(200, &list)
			if list.Total != len(want) || list.ItemsPerPage != 2 {
				t.Errorf("page %d: %d of %d", page, list.ItemsPerPage, list.Total)
			}
			for _, run := range list.DriftRuns {
				got = append(got, run.ID+" "+run.Status)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		var one driftRun
		l.do("GET", stack+"/drift/runs/"+first, nil).want(200, &one)
		if diff := cmp.Diff(map[string]int{"delete": 2, "same": 1}, one.DetectUpdate.ResourceChanges); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		for _, bad := range []string{"page=0", "pageSize=0", "pageSize=101", "page=x"} {
			l.do("GET", stack+"/drift/runs?"+bad, nil).want(400, nil)
		}
		l.do("GET", stack+"/drift/runs/none", nil).want(404, nil).says("Drift run not found")
		l.do("GET", stack+"/drift/runs/"+url.PathEscape("%' OR 1=1"), nil).want(404, nil)
		l.do("GET", "/api/stacks/acme/proj/other/drift/runs/"+first, nil).want(404, nil)
	})
}

// TestDriftOfTargets checks that a refresh of only some resources does not end drift, and that a detection of some
// does not replace one of all.
func TestDriftOfTargets(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		stack := strings.TrimSuffix(l.deployable("dev"), "/deployments")
		l.runUpdate(stack, "refresh", "", true, `{"update":2}`, "succeeded", "pulumi.flag.target-dependents=false")
		for _, flag := range []string{
			"pulumi.flag.target=set", "pulumi.flag.exclude=set", "pulumi.flag.target-replace=set",
			"pulumi.flag.target-dependents=true", "pulumi.flag.exclude-dependents=true", "pulumi.env.PULUMI_OPTION_TARGET=set",
		} {
			l.runUpdate(stack, "refresh", "", true, `{"same":1}`, "succeeded", flag)
			if got := l.driftStatus(stack); !got.DriftDetected {
				t.Errorf("after a detection with %s: %+v", flag, got)
			}
			l.runUpdate(stack, "refresh", "", false, `{"update":1}`, "succeeded", flag)
			if got := l.driftStatus(stack); !got.DriftDetected {
				t.Errorf("after a refresh with %s: %+v", flag, got)
			}
		}
		l.runUpdate(stack, "refresh", "", false, `{"update":1}`, "succeeded", "pulumi.flag.yes=true", "pulumi.flag.target-dependents=false")
		if got := l.driftStatus(stack); got.DriftDetected {
			t.Errorf("after a refresh of all resources: %+v", got)
		}
	})
}

// TestLostDriftRun checks that a run whose job was lost does not report that no drift exists, until
// the job's own result arrives.
func TestLostDriftRun(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	path := l.deployable("dev")
	stack := strings.TrimSuffix(path, "/deployments")
	id := l.deploy(path, "detect-drift")
	_, jc := l.start("agent")
	definition, err := jc.Definition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.runUpdate(stack, "refresh", "token "+definition.Env["PULUMI_ACCESS_TOKEN"], true, `{"same":1}`, "succeeded")
	err = l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		job, err := tx.JobOfDeployment(id)
		job.LastSeenAt = time.Now().Add(-time.Hour)
		if err == nil {
			err = tx.SaveJob(job)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.becomes(path, id, "failed")
	l.do("GET", stack+"/drift/runs/"+id, nil).want(200, nil).says(`"status":"failed"`).says(`"driftDetected":false`)
	l.end(jc, workflow.StatusSucceeded)
	l.do("GET", stack+"/drift/runs/"+id, nil).want(200, nil).says(`"status":"succeeded"`)
}

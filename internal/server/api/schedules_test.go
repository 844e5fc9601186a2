package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// schedule is a schedule as clients decode it.
type schedule struct {
	ID, OrgID, Kind, ScheduleCron, ScheduleOnce, NextExecution, LastExecuted, Created, Modified string
	Paused                                                                                      bool
	Definition                                                                                  struct {
		ProgramID string
		Request   struct {
			Operation        string
			InheritSettings  bool
			OperationContext *struct {
				EnvironmentVariables map[string]any
				Options              map[string]any
			}
		}
	}
}

func TestSchedules(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const stamp = "2006-01-02 15:04:05.000"
		path := l.deployable("dev")
		if a := l.do("GET", path+"/schedules", nil).want(200, nil); strings.TrimSpace(string(a.Body)) != `{"schedules":[]}` {
			t.Errorf("no schedules: %s", a.Body)
		}
		var custom, drift, ttl, got schedule
		l.do("POST", path+"/schedules", `{"scheduleCron":" 0 */4 * * * ","scheduleOnce":"","request":{"operation":"update","inheritSettings":true,
			"agentPoolID":null,"operationContext":{"environmentVariables":{"A":{"secret":"hunter2"}}}}}`).want(200, &custom)
		if _, err := time.Parse(stamp, custom.NextExecution); err != nil || custom.ScheduleCron != "0 */4 * * *" || custom.Kind != "deployment" || custom.OrgID == "" ||
			custom.LastExecuted != "" || custom.Definition.ProgramID == "" || !custom.Definition.Request.InheritSettings {
			t.Errorf("a custom schedule is %+v, %v", custom, err)
		}
		misspelt := `{"scheduleCron":"0 */4 * * *","request":{"operation":"update","operationContext":{"preRunCommand":["a"]}}}`
		for _, route := range []string{"/schedules", "/schedules/" + custom.ID} {
			var answer struct {
				ID       string
				Warnings []string
			}
			l.do("POST", path+route, misspelt).want(200, &answer)
			if len(answer.Warnings) != 1 || !strings.HasPrefix(answer.Warnings[0], `"operationContext.preRunCommand" does not exist`) {
				t.Errorf("%s: the warnings about a misspelt member are %q", route, answer.Warnings)
			}
			if answer.ID != custom.ID {
				l.do("DELETE", path+"/schedules/"+answer.ID, nil).want(200, nil)
			}
		}
		l.do("POST", path+"/schedules/"+custom.ID, `{"scheduleCron":"0 */4 * * *","request":{"operation":"update","operationContext":{"environmentVariables":{"A":{"secret":"hunter2"}}}}}`).want(200, nil)
		a := l.do("GET", path+"/schedules/"+custom.ID, nil).want(200, &got)
		if v, _ := got.Definition.Request.OperationContext.EnvironmentVariables["A"].(map[string]any); v["ciphertext"] == nil || strings.Contains(string(a.Body), "hunter2") {
			t.Errorf("a secret is returned as %s", a.Body)
		}
		l.do("POST", path+"/drift/schedules", `{"scheduleCron":"30 2 * * *","autoRemediate":true}`).want(200, &drift)
		if r := drift.Definition.Request; r.Operation != "detect-drift" || r.OperationContext.Options["remediateIfDriftDetected"] != true {
			t.Errorf("a drift schedule is %+v", drift)
		}
		l.do("POST", path+"/ttl/schedules", `{"timestamp":"2100-01-02T03:04:05.678+02:00"}`).want(200, &ttl)
		if r := ttl.Definition.Request; r.Operation != "destroy" || r.OperationContext == nil || r.OperationContext.Options["deleteAfterDestroy"] != false ||
			ttl.ScheduleOnce != "2100-01-02 01:04:05.678" || ttl.NextExecution != ttl.ScheduleOnce {
			t.Errorf("a TTL schedule is %+v", ttl)
		}

		// What a client has read can be sent back. A destroy without options is not a TTL schedule.
		l.do("POST", path+"/ttl/schedules/"+ttl.ID, map[string]any{"timestamp": ttl.ScheduleOnce, "deleteAfterDestroy": true}).want(200, &ttl)
		if ttl.Definition.Request.OperationContext.Options["deleteAfterDestroy"] != true || ttl.ScheduleOnce != "2100-01-02 01:04:05.678" {
			t.Errorf("the TTL schedule is %+v", ttl)
		}
		l.do("POST", path+"/drift/schedules/"+drift.ID, `{"scheduleCron":"30 3 * * *"}`).want(200, &drift)
		if drift.ScheduleCron != "30 3 * * *" || drift.Definition.Request.OperationContext.Options["remediateIfDriftDetected"] != false {
			t.Errorf("the drift schedule is %+v", drift)
		}
		got = schedule{}
		l.do("POST", path+"/schedules/"+custom.ID, `{"scheduleOnce":"2100-01-01T00:00:00Z","request":{"operation":"destroy","operationContext":{"options":{}}}}`).want(200, &got)
		if got.ScheduleCron != "" || got.ScheduleOnce != "2100-01-01 00:00:00.000" || got.Definition.Request.OperationContext != nil {
			t.Errorf("the custom schedule is %+v", got)
		}
		got = schedule{}
		l.do("POST", path+"/schedules/"+custom.ID, `{"scheduleCron":"* * * * *"}`).want(200, &got)
		if got.ScheduleCron != "* * * * *" || got.Definition.Request.Operation != "destroy" {
			t.Errorf("the custom schedule is %+v", got)
		}

		var list struct{ Schedules []schedule }
		l.do("GET", path+"/schedules", nil).want(200, &list)
		if len(list.Schedules) != 3 || list.Schedules[0].ID != custom.ID || list.Schedules[2].ID != ttl.ID {
			t.Errorf("the list is %+v", list)
		}
		var meta struct{ HasSchedules bool }
		if l.do("GET", path+"/metadata", nil).want(200, &meta); !meta.HasSchedules {
			t.Error("the metadata report no schedules")
		}

		l.do("POST", path+"/schedules/"+drift.ID+"/pause", nil).want(200, nil)
		l.do("POST", path+"/schedules/"+drift.ID+"/pause", nil).want(200, nil)
		if l.do("GET", path+"/schedules/"+drift.ID, nil).want(200, &got); !got.Paused {
			t.Error("the schedule is not paused")
		}
		l.do("POST", path+"/schedules/"+drift.ID+"/resume", nil).want(200, nil)

		l.makeDue(ttl.ID)
		if err := l.triggers.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var history struct {
			ScheduleHistoryEvents []struct {
				ID, ScheduledActionID, Executed, Result, DeploymentID string
				Version                                               int64
			}
		}
		l.do("GET", path+"/schedules/"+ttl.ID+"/history", nil).want(200, &history)
		if len(history.ScheduleHistoryEvents) != 1 {
			t.Fatalf("the history is %+v", history)
		}
		e := history.ScheduleHistoryEvents[0]
		var d struct {
			ID, Initiator, PulumiOperation string
			RequestedBy                    struct{ GithubLogin string }
		}
		l.do("GET", fmt.Sprintf("%s/version/%d", path, e.Version), nil).want(200, &d)
		if e.Result != "succeeded" || e.ScheduledActionID != ttl.ID || e.DeploymentID != d.ID || d.Initiator != "ttl" || d.PulumiOperation != "destroy" || d.RequestedBy.GithubLogin != "admin" {
			t.Errorf("event %+v, deployment %+v", e, d)
		}
		if l.do("GET", path+"/schedules", nil).want(200, &list); len(list.Schedules) != 2 {
			t.Errorf("after the TTL, the list is %+v", list)
		}

		l.do("DELETE", path+"/schedules/"+custom.ID, nil).want(200, nil)
		l.do("DELETE", path+"/schedules/"+custom.ID, nil).want(404, nil)
		l.do("GET", path+"/schedules/"+custom.ID, nil).want(404, nil)
		l.do("GET", path+"/schedules/"+custom.ID+"/history", nil).want(404, nil)
		other := l.deployable("other")
		l.do("DELETE", other+"/schedules/"+drift.ID, nil).want(404, nil)
		l.do("GET", other+"/schedules/"+drift.ID, nil).want(404, nil)
		l.do("POST", other+"/schedules/"+drift.ID+"/pause", nil).want(404, nil)
		l.do("POST", other+"/drift/schedules/"+drift.ID, `{"scheduleCron":"0 0 * * *"}`).want(404, nil)
		l.do("GET", path+"/schedules/"+drift.ID, nil).want(200, nil)
	})
}

// makeDue makes a schedule due now.
func (l *lab) makeDue(id string) {
	l.t.Helper()
	err := l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error {
		c, err := tx.Schedule(id)
		if err != nil {
			return err
		}
		c.NextAt = tx.Now()
		c.TryAt = c.NextAt
		return tx.UpdateSchedule(c)
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

func TestScheduleRefusals(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	plain := l.stack("plain") + "/deployments"
	for route, body := range map[string]string{
		"/schedules": `{"scheduleCron":"* * * * *","request":{"operation":"update"}}`, "/drift/schedules": `{"scheduleCron":"* * * * *"}`,
		"/ttl/schedules": `{"timestamp":"2100-01-01T00:00:00Z"}`,
	} {
		l.do("POST", plain+route, body).want(400, nil).says("does not have deployment settings")
	}
	path := l.deployable("dev")
	for _, tt := range []struct{ route, body, says string }{
		{"/schedules", `{`, "JSON"},
		{"/schedules", `[]`, "JSON"},
		{"/schedules", `{"scheduleCron":5,"request":{"operation":"update"}}`, "scheduleCron"},
		{"/schedules", `{"request":{"operation":"update"}}`, "scheduleCron or scheduleOnce, and not both"},
		{"/schedules", `{"scheduleCron":"* * * * *","scheduleOnce":"2100-01-01T00:00:00Z","request":{"operation":"update"}}`, "scheduleCron or scheduleOnce, and not both"},
		{"/schedules", `{"scheduleCron":"* * * * *"}`, "no request"},
		{"/schedules", `{"scheduleCron":"* * * * *","request":null}`, "no request"},
		{"/schedules", `{"scheduleCron":"* * * * *","request":[]}`, "JSON object"},
		{"/schedules", `{"scheduleCron":"* * * * *","request":{}}`, "operation"},
		{"/schedules", `{"scheduleCron":"* * * * *","request":{"operation":"explode"}}`, "explode"},
		{"/schedules", `{"scheduleCron":"* * * * *","request":{"operation":"update","agentPoolID":"none"}}`, "agent pool"},
		{"/schedules", `{"scheduleCron":"* * * * *","request":{"operation":"update","sourceContext":{"git":{"branch":"--help"}}}}`, "branch"},
		{"/schedules", `{"scheduleCron":"every day","request":{"operation":"update"}}`, "five fields"},
		{"/schedules", `{"scheduleCron":"0 0 30 2 *","request":{"operation":"update"}}`, "never fires"},
		{"/schedules", `{"scheduleOnce":"tomorrow","request":{"operation":"update"}}`, "not a time"},
		{"/schedules", `{"scheduleOnce":"2001-01-01T00:00:00Z","request":{"operation":"update"}}`, "in the past"},
		{"/schedules", `{"scheduleOnce":"9999-12-31T23:59:59Z","request":{"operation":"update"}}`, "100 years"},
		{"/drift/schedules", `{}`, "scheduleCron"},
		{"/drift/schedules", `{"scheduleCron":"* * *"}`, "five fields"},
		{"/ttl/schedules", `{}`, "Timestamp needs to be set"},
		{"/ttl/schedules", `{"timestamp":"2001-01-01T00:00:00Z"}`, "in the past"},
		{"/ttl/schedules", `{"timestamp":7}`, "timestamp"},
	} {
		l.do("POST", path+tt.route, tt.body).want(400, nil).says(tt.says)
	}
	for i := range 101 {
		want := 200
		if i == 100 {
			want = 400
		}
		l.do("POST", path+"/drift/schedules", `{"scheduleCron":"0 0 1 1 *"}`).want(want, nil)
	}

	// A schedule that deletes the stack needs the permission to delete it.
	l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 102}).want(200, nil)
	writer := "token " + l.token("/api/orgs/acme/tokens", map[string]any{"name": "writer"})
	ttl := l.deployable("short") + "/ttl/schedules"
	for body, want := range map[string]int{
		`{"timestamp":"2100-01-01T00:00:00Z"}`:                           200,
		`{"timestamp":"2100-01-01T00:00:00Z","deleteAfterDestroy":true}`: 403,
	} {
		l.send(call{Method: "POST", Path: ttl, Body: body, Auth: writer}).want(want, nil)
	}
}

// TestSchedulesAreCharged lists schedules with large requests. The memory limit covers the requests
// that are read, not only the response.
func TestSchedulesAreCharged(t *testing.T) {
	l := newLabWith(t, storetest.SQLite(t), options{limits: request.Limits{Together: 20 << 20}})
	path := l.deployable("dev")
	body := map[string]any{"scheduleCron": "0 0 * * *", "request": map[string]any{
		"operation": "update", "operationContext": map[string]any{"preRunCommands": []string{strings.Repeat("x", 900<<10)}},
	}}
	for range 9 {
		l.do("POST", path+"/schedules", body).want(200, nil)
	}
	l.do("GET", path+"/schedules", nil).want(413, nil)
}

package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

type logPage struct {
	Type  string `json:"__type"`
	Lines []struct {
		Header    string
		Line      string
		Timestamp time.Time
	}
	NextToken string
}

func (p logPage) text() string {
	var b strings.Builder
	for _, line := range p.Lines {
		if line.Header != "" {
			fmt.Fprintf(&b, "[%s]\n", line.Header)
		}
		b.WriteString(line.Line)
	}
	return b.String()
}

// logFrom reads the log from a continuation token until no more lines arrive.
func (l *lab) logFrom(path, id, token string) (text, next string) {
	l.t.Helper()
	idle := 0
	for {
		var page logPage
		l.do("GET", path+"/"+id+"/logs?wait=0&continuationToken="+url.QueryEscape(token), nil).want(200, &page)
		if page.Type != "DeploymentLogs" {
			l.t.Fatalf("__type = %q", page.Type)
		}
		text += page.text()
		if page.NextToken == "" {
			return text, ""
		}
		if page.NextToken == token {
			// Readers wait briefly before they continue with the next step.
			if idle++; idle > 12 {
				return text, token
			}
			<-time.After(40 * time.Millisecond)
			continue
		}
		token, idle = page.NextToken, 0
	}
}

func (l *lab) wholeLog(path, id string) string {
	l.t.Helper()
	text, next := l.logFrom(path, id, "")
	if next != "" {
		l.t.Fatalf("the log of an ended deployment continues at %q after:\n%s", next, text)
	}
	return text
}

type step struct {
	t     *testing.T
	jc    *protocol.JobClient
	index int
	sent  []byte
}

func (s *step) status(st workflow.StepStatus) {
	s.t.Helper()
	if err := s.jc.StepStatus(s.t.Context(), s.index, protocol.StepStatusRequest{Status: st}); err != nil {
		s.t.Fatalf("status of step %d: %v", s.index, err)
	}
}

// ended reports the end of the step and the size of its log.
func (s *step) ended() {
	s.t.Helper()
	size := int64(len(s.sent))
	req := protocol.StepStatusRequest{Status: workflow.StepSucceeded, LogBytes: &size}
	if err := s.jc.StepStatus(s.t.Context(), s.index, req); err != nil {
		s.t.Fatalf("status of step %d: %v", s.index, err)
	}
}

func (s *step) say(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		frame := protocol.AppendFrame(nil, time.Unix(1700000000, 0), false, []byte(line))
		if _, err := s.jc.PutLog(s.t.Context(), s.index, int64(len(s.sent)), frame, false); err != nil {
			s.t.Fatalf("log of step %d: %v", s.index, err)
		}
		s.sent = append(s.sent, frame...)
	}
}

func (s *step) result() protocol.StepResult {
	sum := sha256.Sum256(s.sent)
	return protocol.StepResult{Step: s.index, Bytes: int64(len(s.sent)), SHA256: hex.EncodeToString(sum[:])}
}

func TestJobFromClaimToResult(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		id := l.deploy(path, "update")
		_, jc := l.claim("a")
		if d := l.details(path, id); d.Status != "accepted" || d.Agent == nil || d.Agent.Hostname != "host-a" || d.Agent.Version != "v1.2.3" || d.Agent.ID != "a" {
			t.Errorf("claimed: %+v", d)
		}
		setup := &step{t: t, jc: jc}
		setup.status(workflow.StepRunning)
		setup.say("agent a runs it")
		text, token := l.logFrom(path, id, "")
		if text != "[Setup]\nagent a runs it\n" || token == "" {
			t.Errorf("log so far:\n%s%s", text, token)
		}
		setup.status(workflow.StepSucceeded)
		if _, err := jc.Heartbeat(t.Context(), protocol.PhaseStarting); err != nil {
			t.Fatal(err)
		}
		def, err := jc.Definition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		source := &step{t: t, jc: jc, index: 1}
		source.status(workflow.StepRunning)
		source.say("cloning")
		source.status(workflow.StepSucceeded)
		last := &step{t: t, jc: jc, index: len(def.Steps) - 1}
		last.status(workflow.StepRunning)
		last.say("hidden until the update is there")
		text, token = l.logFrom(path, id, token)
		if text != "[Get source]\ncloning\n" {
			t.Errorf("before the update:\n%s", text)
		}
		jobToken := "token " + def.Env["PULUMI_ACCESS_TOKEN"]
		var created struct{ UpdateID string }
		l.send(call{Method: "POST", Path: strings.TrimSuffix(path, "/deployments") + "/update", Auth: jobToken, Body: program()}).want(200, &created)
		if text, token = l.logFrom(path, id, token); text != "" {
			t.Errorf("before the update started, the log released:\n%s", text)
		}
		l.send(call{Method: "POST", Path: strings.TrimSuffix(path, "/deployments") + "/update/" + created.UpdateID, Auth: jobToken, Body: `{}`}).want(200, nil)
		text, token = l.logFrom(path, id, token)
		if text != "[pulumi update]\nhidden until the update is there\n" || token == "" {
			t.Errorf("after the update was there:\n%s", text)
		}
		var updates []struct {
			UpdateID string
			Info     struct{ Result string }
		}
		l.do("GET", path+"/"+id+"/updates", nil).want(200, &updates)
		if len(updates) != 1 || updates[0].UpdateID != created.UpdateID {
			t.Fatalf("updates = %+v", updates)
		}
		// The runner dies during the update. The agent reports this, and the server must finish the
		// update.
		agent := &step{t: t, jc: jc, index: len(def.Steps)}
		agent.say("the runner was killed")
		r := protocol.ResultRequest{
			Status: workflow.StatusFailed, Reason: workflow.ReasonOOM, Message: "out of\nmemory", FinishedAt: time.Now(),
			Steps: []protocol.StepResult{setup.result(), source.result(), last.result(), agent.result()},
		}
		for range 2 {
			if err := jc.Result(t.Context(), r); err != nil {
				t.Fatalf("result: %v", err)
			}
		}
		r.Status = workflow.StatusSucceeded
		wantCode(t, "a contradicting result", jc.Result(t.Context(), r), 410)
		_, err = jc.Heartbeat(t.Context(), protocol.PhaseRunning)
		wantCode(t, "a heartbeat after the result", err, 410)
		text, token = l.logFrom(path, id, token)
		if text != "[Agent]\nthe runner was killed\n" || token != "" {
			t.Errorf("the end of the log:\n%s%s", text, token)
		}
		d := l.details(path, id)
		if d.Status != "failed" || d.Reason != "out-of-memory" || d.Message != "out of memory" || len(d.Notes) != 0 || len(d.Results) != 1 {
			t.Errorf("ended: %+v", d)
		}
		if len(d.Updates) != 1 || d.Updates[0].UpdateID != created.UpdateID || d.Updates[0].Result != "failed" || d.Updates[0].Kind != "update" {
			t.Errorf("updates in the details: %+v", d.Updates)
		}
		l.do("GET", path+"/"+id+"/updates", nil).want(200, &updates)
		if updates[0].Info.Result != "failed" {
			t.Errorf("the orphaned update is %s", updates[0].Info.Result)
		}
	})
}

func TestPulumiThatNeverStartsShowsItsOwnError(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	id := l.deploy(path, "preview")
	_, jc := l.start("a")
	def, err := jc.Definition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	(&step{t: t, jc: jc}).status(workflow.StepSucceeded)
	last := &step{t: t, jc: jc, index: len(def.Steps) - 1}
	last.status(workflow.StepRunning)
	last.say("no Pulumi.yaml here")
	last.status(workflow.StepFailed)
	if text, _ := l.logFrom(path, id, ""); text != "[Setup]\n[pulumi preview (not started)]\nno Pulumi.yaml here\n" {
		t.Errorf("log:\n%s", text)
	}
	l.end(jc, workflow.StatusFailed)
	if text := l.wholeLog(path, id); text != "[Setup]\n[pulumi preview (not started)]\nno Pulumi.yaml here\n" {
		t.Errorf("log:\n%s", text)
	}
}

func TestBadCallbacks(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	l.deploy(path, "update")
	job, _ := l.start("a")
	auth, base := "token "+job.JobToken, "/api/workflow/jobs/"+job.JobID
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"PUT", "/1/log?offset=x", "", 400},
		{"PUT", "/1/log?offset=-1", "y", 400},
		{"PUT", "/1/log", "y", 400},
		{"PUT", "/99/log?offset=0", "y", 400},
		{"PUT", "/x/log?offset=0", "y", 400},
		{"PUT", "/1/log?offset=0", strings.Repeat("x", 5<<20), 413},
		{"PATCH", "/1/status", `{"status":"happy"}`, 400},
		{"PATCH", "/99/status", `{"status":"running"}`, 400},
		{"PATCH", "/1/status", `{"status":"running","startedAt":"9999-12-31T23:59:59-23:59"}`, 400},
		{"PATCH", "/1/status", `{"status":"failed","finishedAt":"0000-01-01T00:00:00+23:59"}`, 400},
		{"POST", "/1/logs", `{"offset":-1}`, 400},
		{"POST", "/result", `{`, 400},
		{"POST", "/heartbeat", `{"phase":7}`, 400},
		{"POST", "/heartbeat", ``, 200}, // a stock runner sends no more than this
	} {
		got := l.send(call{Method: c.method, Path: base + c.path, Body: c.body, Auth: auth})
		if got.Status != c.want {
			t.Errorf("%s %s: status %d, body %.200s, want status %d", c.method, c.path, got.Status, got.Body, c.want)
		}
	}
}

package agents_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

var (
	agentLink = regexp.MustCompile(`href="(/acme/-/pools/[^"]+/agents/[^"]+)"`)
	poolLink  = regexp.MustCompile(`href="(/acme/-/pools/[0-9a-f-]{36})"`)
	seen      = regexp.MustCompile(`(?s)seen <local-time><time datetime="([^"]+)"`)
	tags      = regexp.MustCompile(`(?s)<[^>]*>`)
)

func plain(body string) string {
	body = strings.ReplaceAll(strings.ReplaceAll(body, "<wbr>", ""), "<wbr/>", "")
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(body, " "))), " ")
}

// found returns the part of a page that a pattern selects.
func found(t *testing.T, p consoletest.Page, pattern *regexp.Regexp) string {
	t.Helper()
	m := pattern.FindStringSubmatch(p.Body)
	if p.Status != http.StatusOK || m == nil {
		t.Fatalf("status %d, without %s: %s", p.Status, pattern, plain(p.Body))
	}
	return m[1]
}

// TestAgent follows the links to the page of an agent, which shows its version, when the server saw
// it last, and its current and finished jobs.
func TestAgent(t *testing.T) {
	before := time.Now().Truncate(time.Second).Add(-time.Second) // the clock may go back a little
	s := consoletest.New(t)
	s.Stack("web", "dev")
	job := s.StartJob(s.Pool(), "web", "dev")
	b := s.SignIn()
	poolPath := found(t, b.Get("/acme/-/pools"), poolLink)
	save(t, s, store.PoolAgent{PoolID: strings.TrimPrefix(poolPath, "/acme/-/pools/"), AgentID: "a-free", Hostname: "a-free", Slots: 1})
	pool := b.Get(poolPath + "?install=script")
	if text := plain(pool.Body); !strings.Contains(text, "a-free free") || strings.Index(text, "a-free") < strings.Index(text, "build-1") {
		t.Errorf("the busy agent is not the first: %s", text)
	}
	for _, want := range []string{"0 stacks name it, and those that name no pool use it", "--ca-certificate-file FILE"} {
		if text := plain(pool.Body); !strings.Contains(text, want) {
			t.Errorf("the page of the pool lacks %q: %s", want, text)
		}
	}
	path := found(t, pool, agentLink)
	p := b.Get(path)
	at, err := time.Parse(time.RFC3339, found(t, p, seen))
	if err != nil || at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("the agent was seen at %s, %v; want a time since %s", at, err, before)
	}
	text := plain(p.Body)
	facts, jobs, _ := strings.Cut(text, " Now ")
	now, last, ok := strings.Cut(jobs, " Last deployments ")
	if !ok {
		t.Fatalf("the page has no list of jobs: %s", text)
	}
	for _, want := range []string{"build-1", "busy", "version v1.0.0", "linux/amd64", "127.0.0.1", "0 jobs in 24 h", job.AgentID} {
		if !strings.Contains(facts, want) {
			t.Errorf("the facts about the agent lack %q: %s", want, facts)
		}
	}
	if !strings.Contains(now, "web/ dev #1 starting update") || !p.Contains(`href="`+job.Path+`"`) {
		t.Errorf("the current job is not shown: %s", now)
	}
	if !strings.Contains(last, "has finished no deployment") {
		t.Errorf("the agent has finished a job: %s", last)
	}

	job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	text = plain(b.Get(path).Body)
	facts, jobs, _ = strings.Cut(text, " Now ")
	now, last, _ = strings.Cut(jobs, " Last deployments ")
	if strings.Contains(facts, "busy") || !strings.Contains(facts, "1 job in 24 h") || !strings.Contains(now, "The agent runs no deployment.") || !strings.Contains(last, "succeeded web/ dev #1 ") {
		t.Errorf("after the job: %s", text)
	}
	if p := b.Get(path + "x"); p.Status != http.StatusNotFound {
		t.Errorf("an unknown agent: status %d, want 404", p.Status)
	}
}

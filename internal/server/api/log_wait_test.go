package api_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// TestLogRequestsWait reads a log without pauses, as `pulumi deployment log --all` does. The server
// must hold each request until lines arrive, so that the number of requests depends only on the
// number of lines.
func TestLogRequestsWait(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		id := l.deploy(path, "update")
		_, jc := l.start("a")
		logs := path + "/" + id + "/logs"

		type reading struct {
			text     string
			requests int
		}
		done := make(chan reading, 1)
		go func() {
			var r reading
			for token := ""; ; {
				var page logPage
				l.do("GET", logs+"?continuationToken="+url.QueryEscape(token), nil).want(200, &page)
				r.requests++
				r.text += page.text()
				if token = page.NextToken; token == "" {
					done <- r
					return
				}
			}
		}()
		setup := &step{t: t, jc: jc}
		setup.status(workflow.StepRunning)
		for _, line := range []string{"one", "two", "three"} {
			setup.say(line)
			<-time.After(400 * time.Millisecond)
		}
		l.end(jc, workflow.StatusSucceeded)
		r := <-done
		if want := "one\ntwo\nthree\n"; !strings.Contains(r.text, want) {
			t.Errorf("the log is %q, want %q in it", r.text, want)
		}
		// One request per line, plus a few for the headers and the end.
		if r.requests > 8 {
			t.Errorf("the client sent %d requests, want at most 8", r.requests)
		}
	})
}

// TestWaitingLogRequestsEndAtOnce measures how long a waiting reader waits for a line that the server
// has received. The shortest of several times must be well below the interval at which the server
// reads the log for waiting readers of other servers.
func TestWaitingLogRequestsEndAtOnce(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		id := l.deploy(path, "update")
		_, jc := l.start("a")
		setup := &step{t: t, jc: jc}
		setup.status(workflow.StepRunning)
		setup.say("first")
		var page logPage
		const limit = 120 * time.Millisecond
		shortest := time.Hour
		for n := 0; n < 30 && shortest > limit; n++ { // a busy machine needs more than one
			l.do("GET", path+"/"+id+"/logs?wait=0&continuationToken="+url.QueryEscape(page.NextToken), nil).want(200, &page)
			token := page.NextToken
			read := make(chan time.Time, 1)
			go func() {
				l.do("GET", path+"/"+id+"/logs?continuationToken="+url.QueryEscape(token), nil).want(200, nil)
				read <- time.Now()
			}()
			<-time.After(20 * time.Millisecond) // so that the request waits
			said := time.Now()
			setup.say("line")
			shortest = min(shortest, (<-read).Sub(said))
		}
		l.end(jc, workflow.StatusSucceeded)
		if shortest > limit {
			t.Errorf("a line reached a waiting reader after %s, want at most %s", shortest, limit)
		}
	})
}

// TestLogRequestsThatDoNotWait reads a log that has no new lines. The server must respond at once
// to a request without a token, and must let clients shorten the wait.
func TestLogRequestsThatDoNotWait(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	logs := path + "/" + l.deploy(path, "update") + "/logs"
	l.start("a")
	read := func(query string) (page logPage, took time.Duration) {
		t.Helper()
		began := time.Now()
		l.do("GET", logs+query, nil).want(200, &page)
		return page, time.Since(began)
	}
	first, took := read("")
	if took > 5*time.Second || first.NextToken == "" {
		t.Errorf("the first page came after %s with the token %q", took, first.NextToken)
	}
	next := "?continuationToken=" + url.QueryEscape(first.NextToken)
	if _, took = read(next + "&wait=0"); took > 5*time.Second {
		t.Errorf("the response to wait=0 took %s", took)
	}
	if page, took := read(next + "&wait=1"); took < time.Second || page.NextToken != first.NextToken {
		t.Errorf("the response to wait=1 took %s and has the token %q, want %q", took, page.NextToken, first.NextToken)
	}
	l.do("GET", logs+next+"&wait=soon", nil).want(400, nil)
}

package api_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/storage/retention"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestExpiredContentsNameTheSetting checks that the error for expired data names the setting, and
// that expired data is not reported as missing or empty.
func TestExpiredContentsNameTheSetting(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		list := l.deployable("dev")
		path := strings.TrimSuffix(list, "/deployments")
		old := l.deploy(list, "update")
		_, jc := l.start("a")
		(&step{t: t, jc: jc}).say("hello")
		l.end(jc, workflow.StatusSucceeded)
		newest := l.deploy(list, "update")
		_, jc = l.start("a")
		l.end(jc, workflow.StatusSucceeded)

		u := l.fixture.start(path, "update")
		u.send("PATCH", "/checkpoint", state(1)).want(204, nil)
		u.send("POST", "/events/batch", map[string]any{"events": []any{map[string]any{"sequence": 0, "timestamp": 1}}}).want(200, nil)
		u.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		l.do("POST", path+"/import", state(2)).want(200, nil)

		sweeper := retention.New(l.db, storetest.Log(), l.stacks, retention.Policy{States: 1, StatesFor: time.Nanosecond, LogsFor: time.Nanosecond})
		if err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}

		l.do("GET", path+"/export/1", nil).want(410, nil).says("settings keep_states and keep_states_for")
		l.do("GET", path+"/export/2", nil).want(200, nil)
		l.do("GET", path+"/updates/1", nil).want(200, nil)
		var events struct {
			Events            []struct{ StdoutEvent struct{ Message string } }
			ContinuationToken *string
		}
		l.do("GET", u.path+"/events", nil).want(200, &events)
		if len(events.Events) != 1 || !strings.Contains(events.Events[0].StdoutEvent.Message, "keep_logs_for") || events.ContinuationToken != nil {
			t.Errorf("the events are %+v", events)
		}
		if text := l.wholeLog(list, old); strings.Count(text, "\n") != 1 || !strings.Contains(text, "keep_logs_for") {
			t.Errorf("the log is %q", text)
		}
		l.do("GET", list+"/"+old+"/logs?job=0&step=0&offset=0&count=10", nil).want(200, nil).says("keep_logs_for")
		if text := l.wholeLog(list, newest); strings.Contains(text, "keep_logs_for") {
			t.Errorf("the log of the latest deployment is %q", text)
		}
	})
}

// TestUnstartedUpdatesExpire checks that a client which starts its update after more than a day gets the
// error for an unknown update.
func TestUnstartedUpdatesExpire(t *testing.T) {
	f := newFixtureOn(t, storetest.SQLite(t), options{})
	f.stack("dev")
	const path = "/api/stacks/acme/proj/dev/update"
	var created struct{ UpdateID string }
	f.do("POST", path, program()).want(200, &created)
	err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE updates SET created_at = $1", tx.Now().Add(-25*time.Hour))
		return err
	})
	if err == nil {
		err = retention.New(f.db, storetest.Log(), f.stacks, retention.Policy{}).Sweep(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.do("POST", path+"/"+created.UpdateID, nil).want(404, nil).says("has no update")
}

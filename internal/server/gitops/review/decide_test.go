package review_test

import (
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/gitops/review"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

func TestJudge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	job := func(op workflow.Operation) []store.Job { return []store.Job{{Operation: op}} }
	ended := func(status workflow.Status, ago time.Duration) *store.Job {
		return &store.Job{Operation: workflow.OperationDestroy, Status: status, EndedAt: now.Add(-ago)}
	}
	present := store.ReviewStack{Wanted: true, CommitID: "b", Deployed: "b", StackID: "s", DeployedAt: now.Add(-2 * time.Hour)}
	older, absent, fresh, failing := present, present, store.ReviewStack{Wanted: true, CommitID: "b"}, present
	older.Deployed, absent.Wanted, failing.Wanted, failing.Problem = "a", false, false, "it failed"
	with := func(r store.ReviewStack, change func(*store.ReviewStack)) store.ReviewStack {
		change(&r)
		return r
	}
	there := review.Facts{Template: true, Exists: true}
	facts := func(change func(*review.Facts)) review.Facts {
		f := there
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		row   store.ReviewStack
		facts review.Facts
		want  review.Step
	}{
		"row 70: opened":                      {fresh, review.Facts{Template: true}, review.StepCreate},
		"row 70: created":                     {with(fresh, func(r *store.ReviewStack) { r.StackID = "s" }), there, review.StepUpdate},
		"as wanted":                           {present, there, review.StepNone},
		"newer commit":                        {older, there, review.StepUpdate},
		"newer commit, update queued":         {older, facts(func(f *review.Facts) { f.Queued = job(workflow.OperationUpdate) }), review.StepSkipUpdates},
		"newer commit, update running":        {older, facts(func(f *review.Facts) { f.Active = job(workflow.OperationUpdate) }), review.StepUpdate},
		"row 75: closed, update queued":       {absent, facts(func(f *review.Facts) { f.Queued = job(workflow.OperationUpdate) }), review.StepSkipUpdates},
		"row 75: closed, update running":      {absent, facts(func(f *review.Facts) { f.Active = job(workflow.OperationUpdate) }), review.StepDestroy},
		"row 75: closed":                      {absent, there, review.StepDestroy},
		"row 75: destroyed":                   {absent, review.Facts{Template: true}, review.StepForget},
		"closed before anything was deployed": {absent, facts(func(f *review.Facts) { f.Empty = true }), review.StepRemove},
		"row 76: reopened, destroy queued":    {present, facts(func(f *review.Facts) { f.Queued = job(workflow.OperationDestroy) }), review.StepSkipDestroy},
		"row 76: reopened, destroy running":   {present, facts(func(f *review.Facts) { f.Active = job(workflow.OperationDestroy) }), review.StepNone},
		"row 76: reopened, stack destroyed":   {present, review.Facts{Template: true}, review.StepCreate},
		"row 79: destroy failed just now":     {with(failing, func(r *store.ReviewStack) { r.Tries = 1 }), facts(func(f *review.Facts) { f.Destroy = ended(workflow.StatusFailed, 9*time.Minute) }), review.StepNone},
		"row 79: first retry":                 {with(failing, func(r *store.ReviewStack) { r.Tries = 1 }), facts(func(f *review.Facts) { f.Destroy = ended(workflow.StatusFailed, 10*time.Minute) }), review.StepDestroy},
		"row 79: second retry, too early":     {with(failing, func(r *store.ReviewStack) { r.Tries = 2 }), facts(func(f *review.Facts) { f.Destroy = ended(workflow.StatusFailed, 59*time.Minute) }), review.StepNone},
		"row 79: third retry":                 {with(failing, func(r *store.ReviewStack) { r.Tries = 3 }), facts(func(f *review.Facts) { f.Destroy = ended(workflow.StatusFailed, 6*time.Hour) }), review.StepDestroy},
		"row 79: orphan":                      {with(failing, func(r *store.ReviewStack) { r.Tries = 4 }), facts(func(f *review.Facts) { f.Destroy = ended(workflow.StatusFailed, 100*time.Hour) }), review.StepNone},
		"row 80: template deleted":            {older, review.Facts{Exists: true}, review.StepNone},
		"row 80: template deleted, closed":    {absent, review.Facts{Exists: true}, review.StepDestroy},
		"row 81: name taken":                  {fresh, review.Facts{Template: true, NameTaken: true}, review.StepNone},
		"row 83: TTL over":                    {with(present, func(r *store.ReviewStack) { r.TTL = time.Hour }), there, review.StepDestroy},
		"row 83: TTL and close":               {with(absent, func(r *store.ReviewStack) { r.TTL = time.Hour }), facts(func(f *review.Facts) { f.Queued = job(workflow.OperationDestroy) }), review.StepNone},
		"row 83: TTL, another commit":         {with(older, func(r *store.ReviewStack) { r.TTL = time.Hour }), there, review.StepUpdate},
		"row 83: TTL not over":                {with(present, func(r *store.ReviewStack) { r.TTL = 3 * time.Hour }), there, review.StepNone},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.Now = now
			v := review.Judge(c.row, c.facts)
			if v.Step != c.want || v.Step == review.StepNone && v.Wait <= 0 {
				t.Errorf("%+v, want %q", v, c.want)
			}
			if orphan := strings.HasSuffix(name, "orphan"); v.Orphan != orphan || orphan && v.Problem == "" {
				t.Errorf("%+v", v)
			}
			if reason := strings.HasSuffix(name, "taken") || strings.HasSuffix(name, "template deleted"); reason && v.Problem == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestRow82Name(t *testing.T) {
	long := strings.Repeat("group/", 20) + "repo"
	for _, c := range []struct {
		repository, want string
	}{
		{"acme/web", "pr-acme-web-7"},
		{"a/b.c", "pr-a-b.c-7"},
		{"a b/ü$(x)/_", "pr-a-b----x--_-7"},
	} {
		if got := review.Name(c.repository, 7); got != c.want {
			t.Errorf("%s: %s, want %s", c.repository, got, c.want)
		}
	}
	a, b := review.Name(long, 7), review.Name(long+"2", 7)
	if len(a) != 100 || len(b) != 100 || a == b || !strings.HasSuffix(a, "-7") {
		t.Errorf("%s (%d), %s", a, len(a), b)
	}
}

package deployments_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// TestBatch starts deployments of several stacks with requests that arrive twice at the same time, and lists them by their
// batch.
func TestBatch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.stack("b")
		p.deploy(a)
		ids := []string{a.ID, "none", b.ID}
		create := func(op workflow.Operation, batch string) ([]deployments.Target, error) {
			return p.service.CreateBatch(t.Context(), p.user, p.org.ID, ids, op, batch)
		}
		made := make([][]deployments.Target, 4)
		var wait sync.WaitGroup
		for i := range made {
			wait.Go(func() {
				var err error
				if made[i], err = create(workflow.OperationPreview, "batch"); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		for _, list := range made {
			if len(list) != 3 || list[0].Deployment.ID != made[0][0].Deployment.ID || list[2].Deployment.ID != made[0][2].Deployment.ID || fault.KindOf(list[1].Refused) != fault.KindNotFound {
				t.Errorf("one of the requests made %+v", list)
			}
		}
		board := func(q deployments.Query) string {
			t.Helper()
			found, err := p.service.Board(t.Context(), p.user, p.org.ID, q)
			p.must(err)
			return listedIn(found)
		}
		if got, want := board(deployments.Query{Batch: "batch"}), " | a#2 b#1 | "; got != want {
			t.Errorf("the batch is %q, want %q", got, want)
		}
		again, err := create(workflow.OperationUpdate, "batch")
		if p.must(err); again[0].Refused == nil || again[2].Refused == nil {
			t.Errorf("another operation with the same batch: %+v", again)
		}
		p.must(p.service.Cancel(t.Context(), b, made[0][2].Deployment.ID, "ann", false))
		if got, want := board(deployments.Query{Batch: "batch"}), " | a#2 | b#1"; got != want {
			t.Errorf("after one was cancelled: %q, want %q", got, want)
		}
		if got, want := board(deployments.Query{Batch: "batch", Project: "proj", State: "cancelled"}), " |  | b#1"; got != want {
			t.Errorf("the cancelled one: %q, want %q", got, want)
		}
		if elsewhere, err := p.service.CreateBatch(t.Context(), p.user, "another organization", ids[:1], workflow.OperationPreview, "batch"); err != nil || fault.KindOf(elsewhere[0].Refused) != fault.KindNotFound {
			t.Errorf("a stack of another organization: %v, %+v", err, elsewhere)
		}
		if got, want := board(deployments.Query{Batch: "other"}), " |  | "; got != want {
			t.Errorf("another batch: %q", got)
		}
	})
}

// TestBatchOnlyDetects checks that a detection of drift in several stacks changes nothing, whatever their settings say.
func TestBatchOnlyDetects(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st := p.stack("a")
	p.must(p.put(st, `{"sourceContext": {"git": {"repoUrl": "https://git.example/a.git", "branch": "main"}}, "operationContext": {"options": {"remediateIfDriftDetected": true, "shell": "bash"}}}`))
	list, err := p.service.CreateBatch(t.Context(), p.user, p.org.ID, []string{st.ID}, workflow.OperationDetectDrift, "batch")
	if p.must(err); list[0].Refused != nil {
		t.Fatal(list[0].Refused)
	}
	set, err := workflow.ParseSettings([]byte(list[0].Deployment.Configuration))
	if p.must(err); set.Option().RemediateIfDriftDetected || set.Option().Shell != "bash" {
		t.Errorf("the options are %+v", set.Option())
	}
}

// TestReviewedSettings checks that a patch is stored only over the version that its author has seen.
func TestReviewedSettings(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		for version := range int64(2) { // 0 is that of a stack without settings
			var wait sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				wait.Go(func() {
					patch := fmt.Sprintf(`{"operationContext": {"preRunCommands": ["%d"]}}`, i)
					_, errs[i] = p.service.PatchReviewed(t.Context(), p.user, st, []byte(patch), "test", version)
				})
			}
			wait.Wait()
			stored := 0
			for _, err := range errs {
				if err == nil {
					stored++
				} else if !errors.Is(err, deployments.ErrSettingsChanged) || fault.KindOf(err) != fault.KindConflict {
					t.Error(err)
				}
			}
			if set, err := p.service.Settings(t.Context(), st); err != nil || stored != 1 || set.Version != version+1 {
				t.Errorf("%d patches of version %d are stored; %+v, %v", stored, version, set, err)
			}
		}
		if set, err := p.service.PatchSettings(t.Context(), p.user, st, []byte(`{}`), "test"); err != nil || set.Version != 3 {
			t.Errorf("a patch of any version: %+v, %v", set, err)
		}
	})
}

// TestBatchProspects says which of several deployments start, and why the others wait.
func TestBatchProspects(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		var ids []string
		for _, name := range []string{"busy", "a", "b", "bare"} {
			st := p.stack(name)
			if ids = append(ids, st.ID); name == "bare" {
				continue
			}
			_, err := p.service.ReplaceSettings(t.Context(), p.user, st, []byte(`{"sourceContext": {"git": {"repoUrl": "https://git.example/a.git", "branch": "main"}}}`), "test")
			p.must(err)
			if name == "busy" {
				p.deploy(st)
				p.must(p.heartbeat(p.poll("agent1"), protocol.PhaseRunning))
			}
		}
		prospects := func() string {
			t.Helper()
			list, err := p.service.BatchProspects(t.Context(), p.user, p.org.ID, append(ids, "none"), workflow.OperationUpdate)
			p.must(err)
			var text []string
			for _, target := range list {
				switch {
				case target.Refused != nil:
					text = append(text, fmt.Sprintf("%s cannot: %v", target.Stack.Name, target.Refused))
				case target.Waits != "":
					text = append(text, target.Stack.Name+" waits: "+target.Waits)
				default:
					text = append(text, target.Stack.Name+" starts")
				}
			}
			return strings.Join(text, "\n")
		}
		const bare = "\nbare cannot: the settings of the stack do not say where its program is\n cannot: the stack does not exist, or you may not see it"
		check := func(when, want string) {
			t.Helper()
			if got := prospects(); !strings.HasPrefix(got, "busy waits: Waiting for deployment #1 of the stack") || !strings.HasSuffix(got, want+bare) {
				t.Errorf("%s:\n%s\nwant\n%s", when, got, want+bare)
			}
		}
		check("all agents are busy", "\na waits: All agents of the pool \"p\" are busy; the deployment starts when one is free.\nb waits: All agents of the pool \"p\" are busy; the deployment starts when one is free.")
		if c := p.poll("agent2"); c != nil {
			t.Fatal("an agent has got a deployment that does not exist")
		}
		check("one agent is free", "\na starts\nb waits: The pool \"p\" has no free agent left; the deployment starts when one is free.")
	})
}

package deployments_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// kept returns the workspace of the job of a queued deployment, and ends the job.
func (p *plant) kept(id string) workflow.Workspace {
	p.t.Helper()
	c := p.poll("a")
	if c == nil || c.Job.DeploymentID != id {
		p.t.Fatalf("claimed %+v instead of deployment %s", c, id)
	}
	p.must(p.heartbeat(c, "starting"))
	var w workflow.Workspace
	for range 2 { // an agent can request a definition again
		def, err := p.service.Definition(p.t.Context(), runner(c), c.Job.ID)
		p.must(err)
		if again := def.Deployment.Workspace; again != nil {
			if w != (workflow.Workspace{}) && w != *again {
				p.t.Errorf("the workspaces of two definitions are %v and %v", w, *again)
			}
			w = *again
		}
	}
	p.must(p.result(c, workflow.StatusFailed))
	return w
}

func (p *plant) keptBy(st store.Stack, request string) workflow.Workspace {
	p.t.Helper()
	d, err := p.service.Create(p.t.Context(), p.user, st, asked(p.t, request), "api")
	p.must(err)
	return p.kept(d.ID)
}

const (
	cachedSettings = `{"cacheOptions":{"enable":true},"sourceContext":{"git":{"repoUrl":"https://git.example/o/r.git","branch":"main"}},
		"operationContext":{"environmentVariables":{"A":"1","S":{"secret":"x"}}}}`
	own    = `{"operation":"update"}`
	branch = `{"operation":"preview","sourceContext":{"git":{"branch":"feature"}}}`
)

// TestScopes checks that no two stacks, classes or organizations share a scope, and that what is kept
// follows a renamed stack and not a transferred one.
func TestScopes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		seen := map[string]string{}
		note := func(who string, w workflow.Workspace) {
			t.Helper()
			if !w.Valid() || w.Key == "" {
				t.Errorf("%s has the workspace %+v", who, w)
			}
			if other, taken := seen[w.Scope]; taken {
				t.Errorf("%s has the scope of %s", who, other)
			}
			seen[w.Scope] = who
		}
		var all []store.Stack
		for _, name := range []string{"dev", "prod"} {
			st := p.stack(name)
			p.must(p.put(st, cachedSettings))
			note(name+", own", p.keptBy(st, own))
			note(name+", branch", p.keptBy(st, branch))
			all = append(all, st)
		}
		dev := all[0]
		before := p.keptBy(dev, own)
		if again := p.keptBy(dev, own); again != before {
			t.Errorf("the workspace changes from %v to %v without a reason", before, again)
		}
		if seen[before.Scope] != "dev, own" {
			t.Errorf("the second deployment uses the scope of %q", seen[before.Scope])
		}
		if w := p.keptBy(dev, `{"operation":"update","cacheOptions":{"enable":false}}`); w.Valid() {
			t.Errorf("a deployment that requests no cache has the workspace %v", w)
		}

		_, err := p.stacks.Rename(t.Context(), p.user, dev, "development", "other")
		p.must(err)
		renamed := dev
		renamed.Name, renamed.Project = "development", "other"
		if after := p.keptBy(renamed, own); after != before {
			t.Errorf("the renamed stack has the workspace %v, and had %v", after, before)
		}
		fresh := p.stack("dev") // of the same name as the renamed one
		p.must(p.put(fresh, cachedSettings))
		note("new dev, own", p.keptBy(fresh, own))
		p.must(p.stacks.Delete(t.Context(), p.user, fresh, true))
		fresh = p.stack("dev")
		p.must(p.put(fresh, cachedSettings))
		note("dev after its deletion, own", p.keptBy(fresh, own))

		home := p.org
		to, err := p.identity().CreateOrganization(t.Context(), "other", "admin")
		p.must(err)
		token, _, err := p.identity().CreateToken(t.Context(), identity.NewTokenSpec{Kind: store.PersonalToken, Description: "d", UserID: p.user.User.ID})
		p.must(err)
		p.user, err = p.identity().Authenticate(t.Context(), token)
		p.must(err)
		made, err := p.pools.Create(t.Context(), p.user, to, "p", "")
		p.must(err)
		p.must(p.pools.SetDefault(t.Context(), to.ID, made.Pool.ID))
		homeAgent := p.agent
		agent, err := p.identity().Authenticate(t.Context(), made.Token)
		p.must(err)
		current := func() store.Stack {
			var st store.Stack
			p.must(db.Read(t.Context(), func(tx *store.Tx) (err error) {
				st, err = tx.Stack(dev.ID)
				return err
			}))
			return st
		}
		p.must(p.stacks.Transfer(t.Context(), p.user, current(), to))
		p.agent = agent
		moved := p.keptBy(current(), own)
		note("dev in another organization", moved)
		if moved.Key == before.Key {
			t.Error("the transferred stack has the key that it had before")
		}
		p.must(p.stacks.Transfer(t.Context(), p.user, current(), home))
		p.agent = homeAgent
		if back := p.keptBy(current(), own); back.Key == before.Key {
			t.Error("the stack that returned can use what it had kept before")
		}
	})
}

// TestKeyOfWorkspace checks which changes of the settings discard what is kept.
func TestKeyOfWorkspace(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st := p.stack("dev")
	p.must(p.put(st, cachedSettings))
	first := p.keptBy(st, own)
	for _, tt := range []struct {
		name, from, to string
		keeps          bool
	}{
		{"the value of a variable", `"A":"1"`, `"A":"2"`, true},
		{"the value of a secret", `{"secret":"x"}`, `{"secret":"y"}`, true},
		{"the branch", `"main"`, `"release"`, true},
		{"an option", `"operationContext":{`, `"operationContext":{"options":{"skipInstallDependencies":true},`, true},
		{"the name of a variable", `"A":`, `"B":`, false},
		{"the name of a secret", `"S":`, `"T":`, false},
		{"a variable becomes a secret", `"A":"1"`, `"A":{"secret":"1"}`, false},
		{"another variable", `"A":"1"`, `"A":"1","B":"1"`, false},
		{"credentials", `"branch":"main"`, `"branch":"main","gitAuth":{"accessToken":{"secret":"t"}}`, false},
		{"the repository", `/o/r.git`, `/o/s.git`, false},
		{"the image", `"operationContext"`, `"executorContext":{"executorImage":"a:2"},"operationContext"`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.t = t
			p.must(p.put(st, strings.Replace(cachedSettings, tt.from, tt.to, 1)))
			w := p.keptBy(st, own)
			if w.Scope != first.Scope || (w.Key == first.Key) != tt.keeps {
				t.Errorf("the workspace changes from %v to %v", first, w)
			}
		})
	}
}

// TestClearCache discards what the jobs of one stack have kept.
func TestClearCache(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st, other := p.stack("dev"), p.stack("other")
	p.must(p.put(st, cachedSettings))
	p.must(p.put(other, cachedSettings))
	kept, of, pulls := p.keptBy(st, own), p.keptBy(other, own), p.keptBy(st, branch)
	d, err := p.service.Create(t.Context(), p.user, st, asked(t, own), "api")
	p.must(err)
	c := p.poll("a")
	p.must(p.heartbeat(c, "starting"))
	running, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
	p.must(err)
	p.must(p.service.ClearCache(t.Context(), p.user, st))
	repeat := deployments.Repetition{Initiator: deployments.InitiatorConsole}
	if _, err := p.service.Again(t.Context(), p.user, st, d.ID, repeat, deployments.Repeat{}); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("a deployment that runs can be repeated: %v", err)
	}
	p.must(p.result(c, workflow.StatusFailed))
	after := p.keptBy(st, own)
	if *running.Deployment.Workspace != kept || after.Scope != kept.Scope || after.Key == kept.Key {
		t.Errorf("a running job keeps %v, and the next one finds %v", running.Deployment.Workspace, after)
	}
	if p.keptBy(st, branch) == pulls || p.keptBy(other, own) != of {
		t.Error("the classes of a stack must be discarded together, and those of other stacks must stay")
	}
	if again := p.keptBy(st, own); again != after {
		t.Errorf("the workspace changes from %v to %v", after, again)
	}

	without, err := p.service.Again(t.Context(), p.user, st, d.ID, deployments.Repetition{WithoutCache: true}, deployments.Repeat{})
	p.must(err)
	if w := p.kept(without.ID); w.Valid() {
		t.Errorf("a deployment that runs again without a cache has the workspace %v", w)
	}
	with, err := p.again(st, d.ID)
	p.must(err)
	if w := p.kept(with.ID); w != after {
		t.Errorf("a deployment that runs again has the workspace %v, want %v", w, after)
	}
	if err := p.service.ClearCache(t.Context(), identity.Principal{}, st); fault.KindOf(err) == "" {
		t.Errorf("a caller without permissions: %v", err)
	}
}

// TestTrustOfRepetitions checks that a deployment that runs again is never of a higher class.
func TestTrustOfRepetitions(t *testing.T) {
	p, st := newForgePlant(t, storetest.SQLite(t), &forge{}, `{"cacheOptions":{"enable":true},"vcs":{"provider":"github","repository":"o/r"},"sourceContext":{"git":{"branch":"main"}},
		"operationContext":{"environmentVariables":{"S":{"secret":"x"}}}}`)
	push := deployments.Trigger{Operation: workflow.OperationUpdate, Initiator: vcs.InitiatorPush, Checkout: store.VCSCheckout{IntegrationID: "int", RepoID: "repo", CommitID: commit, Ref: "refs/heads/main"}}
	user := func(request string) string {
		d, err := p.service.Create(t.Context(), p.user, st, asked(t, request), "api")
		p.must(err)
		return d.ID
	}
	for i, tt := range []struct{ id, want string }{
		{user(own), "own"},
		{user(branch), "branch"},
		{user(`{"operation":"update","operationContext":{"preRunCommands":["x"]}}`), "branch"},
		{user(`{"operation":"update","sourceContext":{"git":{"commit":"` + commit + `"}}}`), ""},
		{p.createFor(st, push).ID, "own"},
		{p.createFor(st, preview(7)).ID, ""},
	} {
		again, err := p.again(st, tt.id)
		p.must(err)
		twice, err := p.again(st, again.ID)
		p.must(err)
		if got := fmt.Sprint(again.Trust, " ", twice.Trust); got != tt.want+" "+tt.want {
			t.Errorf("row %d: the repetitions have the classes %q, want %q", i, got, tt.want)
		}
	}
	first := user(own)
	p.must(p.patch(st, `{"sourceContext":{"git":{"branch":"release"}}}`))
	again, err := p.again(st, first)
	p.must(err)
	if again.Trust != "branch" {
		t.Errorf("a repetition of what the settings named before has the class %q", again.Trust)
	}
}

// TestAgainAtTheCommit checks that a repetition checks out the commit of the first run, and keeps its class.
func TestAgainAtTheCommit(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st := p.stack("dev")
	p.must(p.put(st, cachedSettings))
	for _, tt := range []struct{ request, ref, class string }{{own, "refs/heads/main", "own"}, {branch, "refs/heads/feature", "branch"}} {
		d, err := p.service.Create(t.Context(), p.user, st, asked(t, tt.request), "api")
		p.must(err)
		c := p.next("a")
		report := func(step int, commit string) {
			p.must(p.service.StepStatus(t.Context(), runner(c), c.Job.ID, step, protocol.StepStatusRequest{Status: workflow.StepSucceeded, Commit: commit}))
		}
		report(2, strings.Repeat("b", 40)) // only the source step knows a commit
		report(1, "HEAD; rm")
		report(1, commit)
		report(1, strings.Repeat("a", 40)) // as a program that imitates the runner
		p.must(p.result(c, workflow.StatusFailed))
		for range 2 {
			d, err = p.again(st, d.ID)
			p.must(err)
			if d.Trust != tt.class {
				t.Errorf("%s: the repetition has the class %q", tt.ref, d.Trust)
			}
			c = p.next("a")
			def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
			p.must(err)
			if git := def.Deployment.Source.Git; git.Commit != commit {
				t.Errorf("%s: the repetition checks out %+v", tt.ref, git)
			}
			p.must(p.result(c, workflow.StatusFailed))
		}
		var c2 store.VCSCheckout
		p.must(p.db.Read(t.Context(), func(tx *store.Tx) (err error) {
			c2, err = tx.Checkout(d.ID)
			return err
		}))
		if c2.Ref != tt.ref || c2.CommitID != commit || c2.IntegrationID != "" {
			t.Errorf("the checkout of the repetition is %+v", c2)
		}
	}
}

// TestWorkspaceUses checks that the use of a workspace is counted once for each claim, and only what runners can say.
func TestWorkspaceUses(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	st := p.stack("dev")
	p.must(p.put(st, cachedSettings))
	_, err := p.service.Create(t.Context(), p.user, st, asked(t, own), "api")
	p.must(err)
	c := p.next("a")
	source := slices.IndexFunc(c.Job.Steps, func(s store.StepState) bool { return s.Name == workflow.SourceStepName })
	for _, report := range []struct {
		step int
		use  protocol.WorkspaceUse
	}{{source, "anything"}, {source + 1, "fresh"}, {source, "reused"}, {source, "reused"}, {source, "fresh"}} {
		p.must(p.service.StepStatus(t.Context(), runner(c), c.Job.ID, report.step, protocol.StepStatusRequest{Status: workflow.StepSucceeded, Workspace: report.use}))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.service.WorkspaceMetrics())
	families, err := registry.Gather()
	p.must(err)
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			got = append(got, fmt.Sprint(family.GetName(), " ", m.GetLabel()[0].GetValue(), " ", m.GetCounter().GetValue()))
		}
	}
	if want := []string{"workflow_server_workspaces_total reused 1"}; !slices.Equal(got, want) {
		t.Errorf("the metrics are %q, want %q", got, want)
	}
}

package executortest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/dev/must"
)

// testWorkspaces checks that jobs of one scope share files, that no other job sees these, and that a
// workspace is removed only when no job uses it.
func testWorkspaces(t *testing.T, s *suite) {
	if !s.Workspaces {
		t.Skip("jobs of this executor have no workspaces")
	}
	own, other := scopeOf(s.own+"own"), scopeOf(s.own+"other")
	if got, want := s.inWorkspace("", "x"), "no workspace"; got != want {
		t.Errorf("a job without a scope printed %q, want %q", got, want)
	}
	if got, want := s.inWorkspace(own, "first"), "in the workspace"; got != want {
		t.Errorf("the first job printed %q, want %q", got, want)
	}
	if got, want := s.inWorkspace(own, "second"), "found first\nin the workspace"; got != want {
		t.Errorf("the second job printed %q, want %q", got, want)
	}
	if got, want := s.inWorkspace(other, "third"), "in the workspace"; got != want {
		t.Errorf("a job of another scope printed %q, want %q", got, want)
	}
	keeper, ok := s.ex.(executor.WorkspaceKeeper)
	if !ok {
		return
	}
	spec := s.spec()
	spec.Workspace = own
	h := s.prepare(spec)
	for _, when := range []string{"prepared", "started"} {
		if err := keeper.RemoveWorkspace(s.ctx, s.own, own); !errors.Is(err, executor.ErrInUse) {
			t.Errorf("removing the workspace of a job that was %s: %v", when, err)
		}
		if w := s.workspace(keeper, own); w == nil || !w.InUse {
			t.Errorf("the workspace of a job that was %s: %+v", when, w)
		}
		if when == "prepared" {
			s.launch(h, launch(program.Action{Forever: true}))
		}
	}
	must.OK(t, s.ex.Remove(s.ctx, h))
	if w := s.workspace(keeper, own); w == nil || w.InUse || w.Used.IsZero() {
		t.Errorf("the workspace after its jobs: %+v", w)
	}
	for range 2 {
		must.OK(t, keeper.RemoveWorkspace(s.ctx, s.own, own))
	}
	if w := s.workspace(keeper, own); w != nil {
		t.Errorf("a removed workspace is listed: %+v", w)
	}
	if got, want := s.inWorkspace(own, "fourth"), "in the workspace"; got != want {
		t.Errorf("the job after the removal printed %q, want %q", got, want)
	}
	if got, want := s.inWorkspace(other, "fifth"), "found third\nin the workspace"; got != want {
		t.Errorf("the removal of a workspace changed another: %q, want %q", got, want)
	}
	for _, scope := range []string{own, other} {
		if err := keeper.RemoveWorkspace(s.ctx, s.own, scope); err != nil {
			t.Error(err)
		}
	}
}

func scopeOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// inWorkspace runs a job that adds a file to its workspace, removes the job and returns its output.
func (s *suite) inWorkspace(scope, file string) string {
	s.t.Helper()
	spec := s.spec()
	spec.Workspace = scope
	h := s.prepare(spec)
	s.launch(h, launch(program.Action{Workspace: file}))
	s.wantCode(h, 0)
	out := s.output(h)
	if err := s.ex.Remove(s.ctx, h); err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (s *suite) workspace(keeper executor.WorkspaceKeeper, scope string) *executor.Workspace {
	s.t.Helper()
	all, err := keeper.Workspaces(s.ctx, s.own)
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(w executor.Workspace) bool { return w.Scope == scope })
	if i < 0 {
		return nil
	}
	return &all[i]
}

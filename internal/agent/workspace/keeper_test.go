package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/workspace"
	"workflowagent/internal/dev/must"
)

// place is a fake of an executor's workspaces.
type place struct {
	all    []executor.Workspace
	taken  map[string]bool // jobs start to use these after they were listed
	broken map[string]bool // these cannot be removed
	free   int64           // grows with each removal; -1 is unknown
	passes atomic.Int64
	slow   bool // the measurement takes as long as it may
}

func (p *place) Workspaces(ctx context.Context, _ string) ([]executor.Workspace, error) {
	p.passes.Add(1)
	if p.slow {
		<-ctx.Done()
	}
	return slices.Clone(p.all), nil
}

func (p *place) RemoveWorkspace(_ context.Context, _, scope string) error {
	switch {
	case p.taken[scope]:
		return executor.ErrInUse
	case p.broken[scope]:
		return errors.New("broken")
	}
	p.all = slices.DeleteFunc(p.all, func(w executor.Workspace) bool {
		if w.Scope == scope && p.free >= 0 {
			p.free += w.Bytes
		}
		return w.Scope == scope
	})
	return nil
}

func (p *place) CleanWorkspaces(context.Context) error    { return nil }
func (p *place) WorkspaceSpace(ctx context.Context) int64 { return p.free }

func newKeeper(t *testing.T, p *place, limits workspace.Limits) *workspace.Keeper {
	log := logrus.New()
	log.SetOutput(t.Output())
	return workspace.New(workspace.Options{Place: p, Dir: filepath.Join(t.TempDir(), "workspaces"), Limits: limits, Log: logrus.NewEntry(log)})
}

func scope(n int) string { return fmt.Sprintf("%064x", n) }

// TestPrune removes from four workspaces of 1 GiB, which were used 1 to 4 hours ago.
func TestPrune(t *testing.T) {
	const gib = 1 << 30
	wide := workspace.Limits{Bytes: 100 * gib, Age: 24 * time.Hour}
	for name, test := range map[string]struct {
		edit func(*place, *workspace.Limits)
		all  bool
		want string // the remaining ones
		err  string
	}{
		"within the limits": {func(*place, *workspace.Limits) {}, false, "1 2 3 4", ""},
		"size":              {func(_ *place, l *workspace.Limits) { l.Bytes = 2 * gib }, false, "1 2", ""},
		"age":               {func(_ *place, l *workspace.Limits) { l.Age = 150 * time.Minute }, false, "1 2", ""},
		"full disk":         {func(p *place, _ *workspace.Limits) { p.free = 0 }, false, "1 2 3", ""},
		"unknown disk":      {func(p *place, _ *workspace.Limits) { p.free = -1 }, false, "1 2 3 4", ""},
		"off":               {func(_ *place, l *workspace.Limits) { l.None = true }, false, "", ""},
		"all":               {func(*place, *workspace.Limits) {}, true, "", ""},
		"in use": {func(p *place, l *workspace.Limits) {
			l.Bytes = 2 * gib
			p.all[3].InUse = true
		}, false, "1 2 4", ""},
		"huge and in use": {func(p *place, l *workspace.Limits) {
			l.Bytes = 8 * gib
			p.all[0].InUse, p.all[0].Bytes = true, 50*gib
		}, false, "1 2 3 4", ""},
		"too large to measure": {func(p *place, _ *workspace.Limits) { p.all[0].Excessive = true }, false, "2 3 4", ""},
		"huge and idle": {func(p *place, l *workspace.Limits) {
			l.Bytes = 8 * gib
			p.all[0].Bytes = 50 * gib
		}, false, "2 3 4", ""},
		"all but those in use":    {func(p *place, _ *workspace.Limits) { p.all[0].InUse = true }, true, "1", ""},
		"taken meanwhile":         {func(p *place, l *workspace.Limits) { l.Bytes, p.taken[scope(4)] = 2*gib, true }, false, "1 2 4", ""},
		"broken":                  {func(p *place, l *workspace.Limits) { l.Bytes, p.broken[scope(4)] = 2*gib, true }, false, "1 4", "broken"},
		"unknown size":            {func(p *place, l *workspace.Limits) { p.all[0].Bytes, l.Bytes = -1, 3*gib }, false, "1 2 3 4", ""},
		"larger than the maximum": {func(_ *place, l *workspace.Limits) { l.Bytes = 1 }, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &place{taken: map[string]bool{}, broken: map[string]bool{}, free: 100 * gib}
			for n := 1; n <= 4; n++ {
				p.all = append(p.all, executor.Workspace{Scope: scope(n), Bytes: gib, Used: time.Now().Add(-time.Duration(n) * time.Hour)})
			}
			limits := wide
			test.edit(p, &limits)
			k := newKeeper(t, p, limits)
			u, err := k.Prune(t.Context(), test.all)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("the error is %v, want %q", err, test.err)
			}
			var left []string
			for _, w := range p.all {
				left = append(left, strings.TrimLeft(w.Scope, "0"))
			}
			if got := strings.Join(left, " "); got != test.want {
				t.Errorf("%q remain, want %q", got, test.want)
			}
			if known, ok := k.Usage(); !ok || u.Count != len(p.all) || len(u.Removed) != 4-len(p.all) || known.Count != u.Count {
				t.Errorf("the result is %+v, and later %+v", u, known)
			}
		})
	}
}

// TestSlowMeasurement removes a workspace that is too old, although the measurement takes too long.
func TestSlowMeasurement(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &place{free: -1, slow: true, all: []executor.Workspace{{Scope: scope(1), Bytes: -1, Used: time.Now().Add(-48 * time.Hour)}}}
		log := logrus.New()
		log.SetOutput(t.Output())
		k := workspace.New(workspace.Options{Place: p, Dir: dir, Limits: workspace.Limits{Bytes: 1, Age: 24 * time.Hour}, Log: logrus.NewEntry(log)})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if u, err := k.Prune(ctx, false); err != nil || len(u.Removed) != 1 {
			t.Errorf("removed %v, %v", u.Removed, err)
		}
	})
}

// TestPassesAfterJobs counts the passes of a keeper: at the start, after jobs, and every hour.
func TestPassesAfterJobs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &place{free: -1}
		log := logrus.New()
		log.SetOutput(t.Output())
		k := workspace.New(workspace.Options{Place: p, Dir: dir, Limits: workspace.Limits{Age: time.Hour}, Log: logrus.NewEntry(log)})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			k.Run(ctx)
		}()
		for _, step := range []struct {
			jobs int
			wait time.Duration
			want int64
		}{
			{0, time.Second, 1},
			{3, time.Second, 1}, // soon after another pass
			{0, 10 * time.Minute, 2},
			{0, 10 * time.Minute, 2},
			{1, time.Second, 3}, // at once
			{0, 2 * time.Hour, 4},
		} {
			for range step.jobs {
				k.Changed()
			}
			time.Sleep(step.wait)
			synctest.Wait()
			if n := p.passes.Load(); n < step.want || n > step.want && step.wait < time.Hour {
				t.Errorf("%d passes after %+v", n, step)
			}
		}
		cancel()
		<-over
	})
}

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "workspaces")
	long := time.Now().Add(-30 * 24 * time.Hour)
	p := &place{free: -1, all: []executor.Workspace{{Scope: scope(1), Used: long}, {Scope: scope(2), Used: long}}}
	log := logrus.New()
	log.SetOutput(t.Output())
	k := workspace.New(workspace.Options{Place: p, Dir: dir, Limits: workspace.Limits{Bytes: 1, Age: 24 * time.Hour}, Log: logrus.NewEntry(log)})
	k.Touch(scope(1), "acme/shop/prod")
	k.Touch("../escape", "acme/shop/prod")
	k.Touch(scope(3), "gone")
	must.OK(t, os.Chtimes(filepath.Join(dir, scope(3)+".json"), long, long))
	list := must.Get(k.List(t.Context()))(t)
	if list[0].Scope != scope(1) || list[0].Stack != "acme/shop/prod" || time.Since(list[0].Used) > time.Hour || list[1].Stack != "" {
		t.Errorf("the workspaces are %+v", list)
	}
	p.all[1].Used = time.Now().Add(24 * time.Hour) // a job has set this
	if list := must.Get(k.List(t.Context()))(t); list[0].Used.After(time.Now()) {
		t.Errorf("a use in the future counts: %+v", list)
	}
	k.Touch(scope(2), "acme/shop/prod")
	must.OK(t, os.Chtimes(filepath.Join(dir, scope(2)+".json"), long, long))
	must.Get(k.Prune(t.Context(), false))(t)
	if len(p.all) != 1 || p.all[0].Scope != scope(1) {
		t.Errorf("%+v remain: the record does not count as a use", p.all)
	}
	entries := must.Get(os.ReadDir(dir))(t)
	if len(entries) != 1 || entries[0].Name() != scope(1)+".json" {
		t.Errorf("the records are %v", entries)
	}
	p.all = append(p.all, executor.Workspace{Scope: scope(4)}) // something that no job can use
	k.Touch(scope(4), "acme/shop/prod")
	must.Get(k.Prune(t.Context(), false))(t)
	if len(p.all) != 1 {
		t.Errorf("%+v remain", p.all)
	}
	must.OK(t, os.Remove(filepath.Join(dir, scope(4)+".json")))
	// A record that is damaged, or a link, says nothing.
	secret := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(secret, []byte(`{"stack":"secret"}`), 0o600))
	must.OK(t, os.Remove(filepath.Join(dir, scope(1)+".json")))
	must.OK(t, os.Symlink(secret, filepath.Join(dir, scope(1)+".json")))
	k.Touch(scope(1), "overwritten")
	if list := must.Get(k.List(t.Context()))(t); list[0].Stack != "" {
		t.Errorf("the workspaces are %+v", list)
	}
	if text := must.Get(os.ReadFile(secret))(t); string(text) != `{"stack":"secret"}` {
		t.Errorf("the record was written through a link: %s", text)
	}
}

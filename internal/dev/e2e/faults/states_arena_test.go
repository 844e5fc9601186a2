package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// stateArena is the set-up of a row about states: one server, one stack, and the stock CLI, which
// reaches the server through a proxy that records the journal.
type stateArena struct {
	*harness.Site
	t     *testing.T
	proxy *faultProxy
	route *route
	log   journalLog
	work  string // directory of the program

	generation int    // of the program
	base       []byte // state before the update
	repair     bool   // the state may have a parent after its child, so the user repairs it first

	serverArgs []string
}

// route chooses a server for each connection of the proxy. While no server listens, it retries.
type route struct {
	retry time.Duration

	mu      sync.Mutex
	servers []string
	next    int
}

// set replaces the servers, given by their URLs.
func (r *route) set(urls ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = nil
	for _, u := range urls {
		r.servers = append(r.servers, strings.TrimPrefix(u, "http://"))
	}
}

// order returns the servers, with another one first at each call.
func (r *route) order() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	first := r.next % len(r.servers)
	return slices.Concat(r.servers[first:], r.servers[:first])
}

func (r *route) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.retry, time.Second))
	defer cancel()
	for {
		var err error
		for _, address := range r.order() {
			var conn net.Conn
			if conn, err = new(net.Dialer).DialContext(ctx, network, address); err == nil {
				return conn, nil
			}
		}
		if r.retry == 0 {
			return nil, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func newStateArena(t *testing.T, row stateRow) *stateArena {
	t.Helper()
	bin, tools := harness.Programs(t)
	a := &stateArena{t: t, work: t.TempDir()}
	dir := t.TempDir()
	var args []string
	if row.ready != nil {
		args = row.ready(t, dir)
	}
	w := must.Get(harness.NewSite(context.WithoutCancel(t.Context()), bin, tools, dir, ownLoopback(), args...))(t)
	a.Site, a.serverArgs = w, args
	t.Cleanup(func() {
		w.Close()
		if t.Failed() {
			t.Logf("the server's log:\n%s", child.Tail(w.Server.LogFile, 40))
		}
	})
	a.route = &route{retry: row.retry}
	a.route.set(w.Server.URL)
	a.proxy = startProxy(t, w.Host(), w.Server.URL)
	a.proxy.seen = a.log.see
	a.proxy.client.DialContext = a.route.dial
	a.proxy.client.DisableKeepAlives = true // calls alternate between servers
	a.write()
	project := path.Dir(a.stack())
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, project, map[string]string{"stackName": path.Base(a.stack())}, nil))
	a.must("up", "--yes", "--skip-preview")
	return a
}

// amount is the number of resources of each kind in the program.
func amount() int {
	if harness.FullScale {
		return 30
	}
	return 8
}

// write writes the next generation of the program: its update creates, updates, replaces and
// deletes resources. It returns the resources' names.
func (a *stateArena) write() []string {
	a.t.Helper()
	a.generation++
	var names []string
	program := bytes.NewBufferString("name: box\nruntime: yaml\nresources:\n")
	add := func(name, definition string, args ...any) {
		names = append(names, name)
		fmt.Fprintf(program, "  %s: {type: %s}\n", name, fmt.Sprintf(definition, args...))
	}
	for i := range amount() {
		add(fmt.Sprintf("kept%d", i), "lab:Random")
		add(fmt.Sprintf("file%d", i), "lab:File, properties: {path: ./file%d, content: generation %d}", i, a.generation)
		add(fmt.Sprintf("replaced%d", i), "lab:Random, properties: {bytes: 8, trigger: generation %d}, options: {deleteBeforeReplace: %v}",
			a.generation, i%2 == 0)
		add(fmt.Sprintf("slow%d-%d", a.generation, i), "lab:Sleep, properties: {seconds: 0.5}, options: {parent: '${kept%d}', dependsOn: ['${replaced%d}']}", i, i)
	}
	harness.Write(a.t, filepath.Join(a.work, "Pulumi.yaml"), program.Bytes(), 0o600)
	return names
}

// runningCLI is a started CLI.
type runningCLI struct {
	*child.Process
	output string // file
}

func (a *stateArena) start(args ...string) runningCLI {
	a.t.Helper()
	output := filepath.Join(a.t.TempDir(), "output")
	args = append(args, "--cwd", a.work, "--stack", path.Base(a.stack()), "--non-interactive")
	// The variables are those of a job, in which the journal alone must preserve the state.
	env := append(a.Tools.Env(a.Home, a.proxy.URL, a.Server.Token), "PULUMI_JOURNALING_BATCH_PERIOD=5", "PULUMI_SKIP_CHECKPOINTS=true")
	p := must.Get(child.Start(a.t.Context(), a.Tools.Pulumi(), args, env, output))(a.t)
	return runningCLI{p, output}
}

// finish waits for the CLI and returns its output.
func (a *stateArena) finish(c runningCLI) (out string, succeeded bool) {
	a.t.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		a.t.Fatalf("the CLI does not end:\n%s", harness.Read(a.t, c.output))
	}
	return string(harness.Read(a.t, c.output)), c.Err().Error() == "exit status 0"
}

func (a *stateArena) must(args ...string) string {
	a.t.Helper()
	out, ok := a.finish(a.start(args...))
	if !ok {
		a.t.Fatalf("pulumi %s failed:\n%s", strings.Join(args, " "), out)
	}
	return out
}

// update starts an update of the next generation and waits until the server has part of its
// journal.
func (a *stateArena) update() runningCLI {
	a.t.Helper()
	a.base = a.export("")
	a.write()
	a.log.reset()
	c := a.start("up", "--yes", "--skip-preview", "--parallel", "4")
	a.until(c, "the server has a batch of the journal", func() bool { return a.log.acked() > 0 })
	return c
}

// creation starts an update and waits until it creates the slow resources. Earlier, a lost entry may
// be one of an unchanged resource. The CLI ignores the loss, and the state that it then has recorded
// may have a parent after its child.
func (a *stateArena) creation() runningCLI {
	a.t.Helper()
	c := a.update()
	a.until(c, "the update creates the slow resources", a.log.creating)
	return c
}

// until waits while the CLI runs.
func (a *stateArena) until(c runningCLI, what string, ask func() bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	err := harness.Until(ctx, func() (bool, error) {
		over, done := ended(c.Process), ask()
		if over && !done {
			return false, errors.New("the update has ended")
		}
		return done, nil
	})
	if err != nil {
		a.t.Fatalf("waiting until %s: %v\n%s", what, err, harness.Read(a.t, c.output))
	}
}

func (a *stateArena) stack() string { return "/api/stacks/" + a.Server.Organization + "/box/dev" }

// export returns the stack's state, of a version unless it is "".
func (a *stateArena) export(version string) []byte {
	a.t.Helper()
	var state json.RawMessage
	of := strings.TrimSuffix(a.stack()+"/export/"+version, "/")
	must.OK(a.t, a.Server.Call(a.t.Context(), http.MethodGet, of, nil, &state))
	return state
}

// check compares a state with the official replay of the acknowledged entries. It returns the number
// of pending operations.
func (a *stateArena) check(state []byte) int {
	a.t.Helper()
	var cases []harness.ReplayCase
	for _, entries := range a.log.possible() {
		data := must.Get(json.Marshal(entries))(a.t)
		cases = append(cases, harness.ReplayCase{Base: a.base, Entries: data, Got: state})
	}
	var diffs []string
	for i, r := range harness.ReplayOfficially(a.t, cases) {
		diff := cmp.Diff(harness.ComparableState(r.Want), harness.ComparableState(r.Got))
		if r.Error == "" && diff == "" {
			deployment, _ := r.Got["deployment"].(map[string]any)
			operations, _ := deployment["pending_operations"].([]any)
			a.t.Logf("the state is the replay of %d entries, the %d. of %d possible journals, with %d pending operations; refused batches: %v",
				len(a.log.possible()[i]), i+1, len(cases), len(operations), a.log.refusals())
			return len(operations)
		}
		diffs = append(diffs, fmt.Sprintf("of journal %d: %s (-want +got)\n%s", i+1, r.Error, diff))
	}
	a.t.Fatalf("the state is the replay of none of %d possible journals; difference from the replay\n%s", len(cases), strings.Join(diffs, "\n"))
	return 0
}

type stackInfo struct {
	Version          int64     `json:"version"`
	CurrentOperation *struct{} `json:"currentOperation"`
}

func (a *stateArena) info() stackInfo {
	a.t.Helper()
	var s stackInfo
	must.OK(a.t, a.Server.Call(a.t.Context(), http.MethodGet, a.stack(), nil, &s))
	return s
}

// recover checks the state after a fault. It cancels the update, and repairs the stack as its user
// would. It returns the number of operations that were pending.
func (a *stateArena) recover() int {
	a.t.Helper()
	before := a.info()
	pending := a.check(a.export(""))
	if before.CurrentOperation != nil {
		a.must("cancel", "--yes")
	}
	a.repeatLate()
	a.check(a.export(""))
	if a.repair {
		a.must("state", "repair", "--yes")
	}
	a.must("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
	names := a.write()
	a.must("up", "--yes", "--skip-preview")
	a.check(a.export(fmt.Sprint(before.Version)))
	a.complete(names)
	if !a.repair && bytes.Contains(harness.Read(a.t, a.Server.LogFile), []byte(lostEntries)) {
		a.t.Errorf("the server warns about lost entries of a journal that is complete:\n%s", child.Tail(a.Server.LogFile, 20))
	}
	return pending
}

// repeatLate sends a batch again after the end of its update. The server refuses it.
func (a *stateArena) repeatLate() {
	a.t.Helper()
	to, b := a.log.last()
	req := must.Get(http.NewRequestWithContext(a.t.Context(), http.MethodPatch, a.Server.URL+to, strings.NewReader(b.body)))(a.t)
	req.Header = b.header
	res := must.Get(http.DefaultClient.Do(req))(a.t)
	defer res.Body.Close()
	if res.StatusCode/100 != 4 {
		a.t.Errorf("a batch that arrives after the end of its update is answered with %s", res.Status)
	}
}

// complete checks that the stack has exactly the resources of its program, and no pending
// operation.
func (a *stateArena) complete(names []string) {
	a.t.Helper()
	var state struct {
		Deployment struct {
			Resources []struct {
				URN    string `json:"urn"`
				Type   string `json:"type"`
				Delete bool   `json:"delete"`
			} `json:"resources"`
			Pending []any `json:"pending_operations"`
		} `json:"deployment"`
	}
	must.OK(a.t, json.Unmarshal(a.export(""), &state))
	var got []string
	for _, r := range state.Deployment.Resources {
		if strings.HasPrefix(r.Type, "lab:") {
			got = append(got, r.URN[strings.LastIndex(r.URN, ":")+1:])
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if diff := cmp.Diff(names, got); diff != "" || len(state.Deployment.Pending) > 0 {
		a.t.Errorf("%d operations are pending, and the stack's resources differ from the program's (-want +got):\n%s", len(state.Deployment.Pending), diff)
	}
}

// ended waits for an update and checks its result.
func (a *stateArena) ended(c runningCLI, ok bool) {
	a.t.Helper()
	if out, succeeded := a.finish(c); succeeded != ok {
		a.t.Errorf("the update succeeds: %v, want %v\n%s", succeeded, ok, out)
	}
}

func (a *stateArena) killCLI(c runningCLI) {
	a.t.Helper()
	must.OK(a.t, c.Stop(syscall.SIGKILL, patience))
	if !strings.Contains(c.Err().Error(), "killed") {
		a.t.Fatalf("the update ended before it was killed: %v\n%s", c.Err(), harness.Read(a.t, c.output))
	}
}

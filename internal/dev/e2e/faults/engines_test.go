package faults

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// ledger counts the marks of jobs in containers, received over the host's network, and is the gate
// at which they wait.
type ledger struct {
	*httptest.Server
	mu    sync.Mutex
	marks map[string]int
	gate  chan struct{}
	open  sync.Once
	busy  atomic.Bool // pulumi does not end by itself
}

// newLedger returns a ledger at an address of this machine.
func newLedger(t *testing.T, host string) *ledger {
	t.Helper()
	l := &ledger{marks: map[string]int{}, gate: make(chan struct{})}
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0")))(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /mark/{word}", func(_ http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.marks[r.PathValue("word")]++
	})
	mux.HandleFunc("GET /gate", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-l.gate:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /busy", func(_ http.ResponseWriter, r *http.Request) {
		if l.busy.Load() {
			<-r.Context().Done()
		}
	})
	l.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	l.Start()
	t.Cleanup(func() {
		l.letGo()
		l.Close()
	})
	return l
}

func (l *ledger) letGo() { l.open.Do(func() { close(l.gate) }) }

func (l *ledger) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.marks)
}

const (
	markPulumi = `wget -q -O /dev/null "$LEDGER_URL/mark/pulumi"`
	waitAtGate = `wget -q -O /dev/null "$LEDGER_URL/gate"`
)

// containers is the place of jobs in containers of an engine. Rows do not share ledgers.
func containers(t *testing.T, engine *lab.Engine, image string, registry *lab.Registry) place {
	t.Helper()
	l := newLedger(t, "127.0.0.1")
	at := place{
		name: "docker", image: image, engine: engine, registry: registry,
		variables: map[string]string{"LEDGER_URL": l.URL},
		settings:  map[string]string{"pull_image": "false"},
		env:       []string{"DOCKER_HOST=" + engine.Host},
		mark: func(_ *arena, word string) string {
			return strings.Replace(markPulumi, "pulumi", word, 1)
		},
		marks:  func(*arena) map[string]int { return l.counts() },
		gate:   func(*arena) string { return waitAtGate },
		open:   func(*arena) error { l.letGo(); return nil },
		runner: containerRunner,
		left:   leftOnEngine,
		start: func(t *testing.T, serverArgs ...string) *harness.Site {
			return harness.StartSite(t, ownLoopback(), serverArgs...)
		},
	}
	if registry != nil {
		at.settings["pull_image"] = "true"
	}
	return at
}

// sharedEngine starts an engine, or uses that of DOCKER_HOST, for rows that do not disturb it.
func sharedEngine(t *testing.T) place {
	t.Helper()
	if reason, ok := lab.EngineAvailable(); !ok {
		t.Skip(reason)
	}
	engine := must.Get(lab.NeedEngine(t.Context(), shortDir(t)))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	if reason, ok := engine.SharesHostNetwork(t.Context()); !ok {
		t.Skip(reason)
	}
	image := must.Get(lab.StubImage(t.Context(), engine.Host, harness.StubVersion+markPulumi+"\n"))(t)
	return place{name: "docker", own: func(t *testing.T, row faultRow) place {
		if row.pulled {
			return engineOfItsOwn(t, row)
		}
		return containers(t, engine, image, nil)
	}}
}

func engineOfItsOwn(t *testing.T, row faultRow) place {
	t.Helper()
	return engineWithRegistry(t, row, lab.RegistryOptions{})
}

// engineWithRegistry starts an engine for one row, and a registry if the row pulls its image.
func engineWithRegistry(t *testing.T, row faultRow, o lab.RegistryOptions) place {
	t.Helper()
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	ctx := t.Context()
	engine := must.Get(lab.StartEngine(ctx, shortDir(t), row.engine...))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	image := must.Get(lab.StubImage(ctx, engine.Host, harness.StubVersion+markPulumi+"\n"))(t)
	if !row.pulled {
		return containers(t, engine, image, nil)
	}
	registry, err := lab.StartRegistry(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	if image, err = registry.Take(ctx, engine, image, "team/stub", "1"); err != nil {
		t.Fatal(err)
	}
	return containers(t, engine, image, registry)
}

// shortDir is a directory with a path short enough for an engine's sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "e2e-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (a *arena) docker() *client.Client {
	a.t.Helper()
	docker := must.Get(a.place.engine.Client())(a.t)
	a.t.Cleanup(func() { _ = docker.Close() })
	return docker
}

func (a *arena) label() client.Filters {
	return client.Filters{}.Add("label", "workflowagent.deployment_id="+a.job.ID)
}

// containerRunner finds the runners below the inits of the job's containers.
func containerRunner(a *arena) []int {
	docker := a.docker()
	list := must.Get(docker.ContainerList(a.t.Context(), client.ContainerListOptions{Filters: a.label()}))(a.t)
	var pids []int
	for _, c := range list.Items {
		found := must.Get(docker.ContainerInspect(a.t.Context(), c.ID, client.ContainerInspectOptions{}))(a.t)
		pids = append(pids, children(a.t, found.Container.State.Pid)...)
	}
	return pids
}

func leftOnEngine(a *arena) ([]string, error) {
	docker, err := a.place.engine.Client()
	if err != nil {
		return nil, err
	}
	defer docker.Close()
	ctx := context.Background() // it runs at the end of the test, too
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: a.label()})
	if err != nil {
		return nil, err
	}
	var left []string
	for _, c := range list.Items {
		left = append(left, c.Names...)
	}
	volumes, err := docker.VolumeList(ctx, client.VolumeListOptions{Filters: a.label()})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		left = append(left, "volume "+v.Name)
	}
	return left, nil
}

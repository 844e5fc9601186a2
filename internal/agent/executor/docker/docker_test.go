package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// Names of the test images, which contain only a user database.
const (
	testImage     = "workflowagent/executortest:root"
	testUserImage = "workflowagent/executortest:user"
)

const memoryLimit = 64

var engine struct {
	once      sync.Once
	reason    string // the reason if no engine is available
	err       error
	lab       *lab.Engine
	runnerDir string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if engine.lab != nil {
		if err := engine.lab.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if engine.runnerDir != "" {
		_ = os.RemoveAll(engine.runnerDir)
	}
	os.Exit(code)
}

func needEngine(t *testing.T) (host, runnerDir string) {
	t.Helper()
	engine.once.Do(func() { engine.reason, engine.err = startEngine() })
	if engine.reason != "" {
		t.Skip("no Docker Engine: ", engine.reason)
	}
	if engine.err != nil {
		t.Fatal(engine.err)
	}
	return engine.lab.Host, engine.runnerDir
}

func startEngine() (reason string, err error) {
	if reason, ok := lab.EngineAvailable(); !ok {
		return reason, nil
	}
	// A socket's path must be short, and the paths of test directories are too long.
	dir, err := os.MkdirTemp("", "wfe")
	if err != nil {
		return "", err
	}
	if engine.lab, err = lab.NeedEngine(context.Background(), dir); err != nil {
		return "", err
	}
	if engine.runnerDir, err = os.MkdirTemp("", "wfr"); err != nil {
		return "", err
	}
	if _, err := executortest.BuildRunner(engine.runnerDir, executor.EmbeddableName); err != nil {
		return "", err
	}
	if err := importImage(engine.lab, testImage); err != nil {
		return "", err
	}
	return "", importImage(engine.lab, testUserImage, "USER worker:staff")
}

func importImage(to *lab.Engine, ref string, changes ...string) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0::/:/bin/sh\nworker:x:4711:4712::/:/bin/sh\n",
		"etc/group":  "root:x:0:\nstaff:x:4713:\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := w.Write([]byte(content)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	docker, err := to.Client()
	if err != nil {
		return err
	}
	defer docker.Close()
	result, err := docker.ImageImport(context.Background(), client.ImageImportSource{Source: &archive, SourceName: "-"}, ref,
		client.ImageImportOptions{Changes: append(changes, "ENV PATH=/bin")})
	if err != nil {
		return fmt.Errorf("importing an image: %w", err)
	}
	return result.Close()
}

func testLog(t *testing.T) *logrus.Entry {
	log := logrus.New()
	log.SetOutput(t.Output())
	log.SetLevel(logrus.DebugLevel)
	return logrus.NewEntry(log)
}

const testPids = 4096 // the default of docker_pids_limit

func newExecutor(t *testing.T, o Options) *Executor {
	t.Helper()
	o.Log, o.PidsLimit = testLog(t), cmp.Or(o.PidsLimit, testPids)
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func labClient(t *testing.T) *client.Client {
	t.Helper()
	docker, err := engine.lab.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = docker.Close() })
	return docker
}

func objects(t *testing.T, name, shared string) []string {
	t.Helper()
	docker := labClient(t)
	var out []string
	filters := client.Filters{}.Add("label", labelName+"="+name)
	containers, err := docker.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers.Items {
		out = append(out, c.Names...)
	}
	volumes, err := docker.VolumeList(t.Context(), client.VolumeListOptions{Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Items {
		out = append(out, v.Name)
	}
	if shared != "" {
		matches, err := filepath.Glob(filepath.Join(shared, name+"*"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, matches...)
	}
	return out
}

func jobOf(t *testing.T, h executor.Handle) job {
	t.Helper()
	var j job
	if err := json.Unmarshal(h.Data, &j); err != nil {
		t.Fatal(err)
	}
	return j
}

func conformance(t *testing.T, o Options, spec executor.Spec) {
	t.Setenv("PULUMI_AGENT_TOKEN", executortest.AgentSecret)
	o.Memory = memoryLimit << 20
	executortest.Run(t, executortest.Place{
		Workspaces: true,
		Open:       func(t *testing.T) executor.Executor { return newExecutor(t, o) },
		Spec:       func(*testing.T) executor.Spec { return spec },
		BadSpec: func(*testing.T) executor.Spec {
			return executor.Spec{Image: &workflow.Image{Reference: "workflowagent/executortest:missing"}}
		},
		Visible: func(t *testing.T, h executor.Handle) string {
			docker := labClient(t)
			found, err := docker.ContainerInspect(t.Context(), jobOf(t, h).Name, client.ContainerInspectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			seen := string(found.Raw)
			for _, name := range []string{"cmdline", "environ"} {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", found.Container.State.Pid, name))
				if err != nil && found.Container.State.Pid == 0 {
					t.Fatal(err)
				}
				seen += string(b)
			}
			return seen
		},
		Leftovers: func(t *testing.T, h executor.Handle) []string {
			return objects(t, jobOf(t, h).Name, o.SharedVolumeDirectory)
		},
		LeftoversOf: func(t *testing.T, spec executor.Spec) []string {
			return objects(t, executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch), o.SharedVolumeDirectory)
		},
		Broken:      func(t *testing.T) executor.Executor { return brokenExecutor(t, o) },
		MemoryLimit: memoryLimit,
	})
}

func spec(ref string) executor.Spec {
	return executor.Spec{OS: "linux", Image: &workflow.Image{Reference: ref}}
}

func TestConformance(t *testing.T) {
	host, runnerDir := needEngine(t)
	s := spec(testUserImage)
	s.RootPath = "/home/worker"
	conformance(t, Options{Config: Config{Host: host, Network: "none"}, WorkingDirectory: runnerDir}, s)
}

func TestConformanceOnSharedDirectory(t *testing.T) {
	host, runnerDir := needEngine(t)
	s := spec(testImage)
	s.Loopback, s.LoopbackOK = true, true
	conformance(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir, SharedVolumeDirectory: t.TempDir()}, s)
}

func prepare(t *testing.T, e *Executor, s executor.Spec) (executor.Handle, error) {
	t.Helper()
	s.JobID, s.Epoch, s.Owner = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_")), 1, "owner-"+t.Name()
	h, err := e.Prepare(t.Context(), s, func(line string) { t.Log(line) })
	if err == nil {
		t.Cleanup(func() {
			if err := e.Remove(context.Background(), h); err != nil {
				t.Error(err)
			}
		})
	}
	return h, err
}

func TestImageErrors(t *testing.T) {
	host, runnerDir := needEngine(t)
	for _, test := range []struct {
		name  string
		image *workflow.Image
		pull  bool
		want  string
	}{
		{"absent", &workflow.Image{Reference: "nobody/nothing:1"}, false, "pull_image is false"},
		{"none", nil, false, "does not specify an image"},
		{"not a name", &workflow.Image{Reference: "Not A Name"}, true, "not the name of an image"},
		{"unreachable", &workflow.Image{Reference: "127.0.0.1:9/x:1"}, true, "could not be pulled"},
		{
			"unreachable, with credentials",
			&workflow.Image{Reference: "127.0.0.1:9/x:1", Credentials: &workflow.ImageCredentials{Username: "u", Password: "registry-password"}},
			true, "could not be pulled",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newExecutor(t, Options{Config: Config{Host: host, PullImage: test.pull}, WorkingDirectory: runnerDir})
			defer e.Close()
			_, err := prepare(t, e, executor.Spec{Image: test.image})
			var failed *executor.Error
			if !errors.As(err, &failed) || failed.Reason != workflow.ReasonImage || !strings.Contains(failed.Message, test.want) {
				t.Fatalf("Prepare: %#v, want an error about the image with %q", err, test.want)
			}
			if strings.Contains(err.Error(), "registry-password") {
				t.Errorf("the error contains a password: %v", err)
			}
			t.Log(err)
		})
	}
}

// TestImagesGoByName refers to an image on the host by a name that the engine could interpret as
// the image's ID.
func TestImagesGoByName(t *testing.T) {
	host, runnerDir := needEngine(t)
	found, err := labClient(t).ImageInspect(t.Context(), testImage)
	if err != nil {
		t.Fatal(err)
	}
	_, hex, _ := strings.Cut(found.ID, ":")
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	for _, reference := range []string{found.ID, hex, hex[:12]} {
		if _, err := prepare(t, e, spec(reference)); err == nil {
			t.Errorf("a job runs in an image that it selected by its ID, %s", reference)
		}
	}
}

func TestHardening(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host, CPUs: 1.5}, WorkingDirectory: runnerDir})
	defer e.Close()
	h, err := prepare(t, e, spec(testImage))
	if err != nil {
		t.Fatal(err)
	}
	found, err := labClient(t).ContainerInspect(t.Context(), jobOf(t, h).Name, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, hc := found.Container.Config, found.Container.HostConfig
	if hc.Privileged || len(hc.CapAdd) > 0 || len(hc.Binds) > 0 || hc.PidsLimit == nil || *hc.PidsLimit != testPids || hc.NanoCPUs != 15e8 {
		t.Errorf("host configuration %+v", hc)
	}
	if !strings.Contains(strings.Join(hc.SecurityOpt, " "), "no-new-privileges") {
		t.Errorf("security options %q", hc.SecurityOpt)
	}
	if c.StopSignal != "SIGINT" || c.StopTimeout == nil || *c.StopTimeout < 15*60 {
		t.Errorf("stop signal %s after %v s", c.StopSignal, c.StopTimeout)
	}
	for _, m := range found.Container.Mounts {
		if strings.Contains(m.Source, "docker.sock") || (m.Destination == path.Dir(runnerPath)) == m.RW {
			t.Errorf("mount %+v", m)
		}
	}
}

func TestRunnerForAnotherArchitecture(t *testing.T) {
	host, _ := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: t.TempDir()})
	defer e.Close()
	if err := e.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "no job can run in a container") {
		t.Errorf("Check without a runner: %v", err)
	}
	_, err := prepare(t, e, spec(testImage))
	if err == nil || !strings.Contains(err.Error(), "no runner for linux/"+runtime.GOARCH) {
		t.Errorf("Prepare without a runner: %v", err)
	}
}

func TestRunnerVolumeIsRepaired(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	docker := labClient(t)
	h, err := prepare(t, e, spec(testImage))
	if err != nil {
		t.Fatal(err)
	}
	runner, err := e.findRunner("owner-"+t.Name(), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := docker.VolumeRemove(t.Context(), runner.volume, client.VolumeRemoveOptions{}); err != nil {
		t.Fatal("the runner's volume was missing:", err)
	}
	if h, err = prepare(t, e, spec(testImage)); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context(), h, []byte(`{"actions":[{"exit":9}]}`)); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Code != 9 {
		t.Errorf("Wait: %+v, %v", exit, err)
	}
}

func TestLoopback(t *testing.T) {
	host, runnerDir := needEngine(t)
	s := spec(testImage)
	s.Loopback, s.LoopbackOK = true, true
	e := newExecutor(t, Options{Config: Config{Host: host, Network: "bridge"}, WorkingDirectory: runnerDir})
	defer e.Close()
	if _, err := prepare(t, e, s); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("Prepare on a bridge with a server on loopback: %v", err)
	}
	// A job's definition alone must not permit access to the host's network.
	s.LoopbackOK = false
	e = newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	if _, err := prepare(t, e, s); err == nil || !strings.Contains(err.Error(), "service_url is not on loopback") {
		t.Errorf("Prepare for a server whose own URL is on loopback: %v", err)
	}
}

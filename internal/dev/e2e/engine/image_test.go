package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/release/image"
)

// dockerCLI runs docker's own command, as docs/installation.md does.
type dockerCLI struct {
	path string
	dir  string // working directory of the scripts
	env  []string
}

func newDockerCLI(t *testing.T, engine *lab.Engine) dockerCLI {
	t.Helper()
	path, err := exec.LookPath("docker")
	if err != nil {
		if os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all" {
			t.Fatal("this machine must run all tests and has no docker command (Debian's docker.io or docker-cli)")
		}
		t.Skip("no docker command on this machine (Debian's docker.io or docker-cli)")
	}
	return dockerCLI{path, t.TempDir(), append(os.Environ(), "DOCKER_HOST="+engine.Host, "DOCKER_CONFIG="+t.TempDir())}
}

func (d dockerCLI) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, d.path, args...)
	cmd.Env = d.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("docker %s: %w\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return out, err
}

func (d dockerCLI) must(t *testing.T, args ...string) string {
	t.Helper()
	out := must.Get(d.run(t.Context(), args...))(t)
	return strings.TrimSpace(string(out))
}

// loadImage loads a product's image from its release archive into the engine, and returns the
// image's names, with former names last.
func (d dockerCLI) loadImage(t *testing.T, p image.Product, bin string) []string {
	t.Helper()
	about := image.Release{Version: "v0.0.1-e2e", Created: time.Unix(1_700_000_000, 0)}
	made := must.Get(about.Image(p, runtime.GOARCH, bin))(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	var archive bytes.Buffer
	must.OK(t, (image.Set{Product: p, Release: about, Images: map[string]v1.Image{runtime.GOARCH: made}}).WriteArchive(&archive))
	harness.Write(t, file, archive.Bytes(), 0o600)
	d.must(t, "load", "-i", file)
	var names []string
	for _, repository := range p.Repositories {
		names = append(names, repository+":"+about.Version+"-"+runtime.GOARCH)
	}
	t.Cleanup(func() {
		if _, err := d.run(context.Background(), append([]string{"rmi", "--force"}, names...)...); err != nil {
			t.Error(err)
		}
	})
	return names
}

// start runs a container with the commands of docs/installation.md, until the test finishes. It
// changes the container's name, because another container might already have that name.
func (d dockerCLI) start(t *testing.T, mark string, values map[string]string) (container string) {
	t.Helper()
	script := harness.FromPage(t, mark, values)
	name := regexp.MustCompile(`--name (\S+)`).FindStringSubmatch(script)
	if name == nil {
		t.Fatalf("the commands after %q name no container", mark)
	}
	container = "wflab-" + name[1]
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() {
			logs, err := d.run(ctx, "logs", container)
			t.Logf("--- %s: %v\n%s", container, err, logs)
		}
		_, err := d.run(ctx, "rm", "--force", "--volumes", container)
		_, err2 := d.run(ctx, "volume", "rm", "--force", container)
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
	})
	d.script(t, ours(script, name[1]))
	return container
}

func ours(script, name string) string {
	return regexp.MustCompile(`(--name |--volume |docker stop |docker rm |docker cp )`+name+`\b`).ReplaceAllString(script, "${1}wflab-"+name)
}

func (d dockerCLI) script(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.Env = d.dir, append(d.env, "PATH="+filepath.Dir(d.path)+":"+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s\n%v\n%s%s", script, err, out, &stderr)
	}
	return string(out)
}

// TestEngineImages runs the server and the agent from their images, and a deployment with them. It
// then replaces the agent's container and runs another deployment.
func TestEngineImages(t *testing.T) {
	if reason, ok := lab.EngineAvailable(); !ok {
		t.Skip(reason)
	}
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "e2e-") // the engine's sockets must have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine := must.Get(lab.NeedEngine(ctx, dir))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	socket, local := strings.CutPrefix(engine.Host, "unix://")
	if !local || !engine.BridgeIP.IsValid() {
		t.Skipf("the engine at %s is not one of this machine with a socket and a bridge", engine.Host)
	}
	docker := newDockerCLI(t, engine)
	bin, tools := harness.Programs(t)
	// The agent's image has the runners of both architectures; bin has only this machine's.
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	must.OK(t, lab.BuildRunner(ctx, bin, other, os.Stderr))
	executorImage, err := lab.ExecutorImage(ctx, engine.Host, tools)
	if err != nil {
		t.Fatal(err)
	}
	w := &harness.Site{Dir: docker.dir, Bin: bin, Tools: tools, Server: imagedServer(t, docker, bin, engine.BridgeIP.String())}
	listen := net.JoinHostPort(engine.BridgeIP.String(), "0")
	if w.Git, err = lab.StartGitServer(ctx, filepath.Join(w.Dir, "git"), lab.GitOptions{Listen: listen}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Git.Close() })
	must.OK(t, w.MakePool(ctx))

	docker.script(t, harness.FromPage(t, "image environment", map[string]string{
		"PULUMI_AGENT_SERVICE_URL": w.Server.URL, "PULUMI_AGENT_TOKEN": w.Pool.Token + "\nPULUMI_AGENT_PULL_IMAGE=false",
	}))
	names := docker.loadImage(t, image.Agent(), bin)
	start := map[string]string{"IMAGE": names[0], "SOCKET": socket}
	agent := docker.start(t, "image agent", start)

	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", executorImage, nil)
	for _, operation := range []string{"update", "destroy"} {
		waitAgentOnline(t, w)
		d := s.Finish(ctx, t, s.Deploy(ctx, t, operation, repo.URL))
		log := s.Log(ctx, t, d)
		if d.Status != "succeeded" || !strings.Contains(log, "== pulumi "+operation) {
			t.Fatalf("%s ended as %+v; its log:\n%s", operation, d, log)
		}
		if out := docker.must(t, "exec", agent, "customer-managed-workflow-agent", "status"); !strings.Contains(out, w.Server.URL) {
			t.Errorf("status says\n%s", out)
		}
		docker.must(t, "stop", agent)
		if code := docker.must(t, "inspect", "--format", "{{.State.ExitCode}} {{.Config.User}} {{.HostConfig.ReadonlyRootfs}}", agent); code != "0 65532:65532 true" {
			t.Errorf("the stopped agent has %s", code)
		}
		docker.must(t, "start", agent)
	}
	// An upgrade: another container with the same volume.
	docker.script(t, ours(harness.FromPage(t, "image stop", nil), "workflow-agent"))
	docker.script(t, ours(harness.FromPage(t, "image agent", start), "workflow-agent"))
	waitAgentOnline(t, w)
	harness.Leftovers(ctx, t, engine)

	old := docker.must(t, "run", "--rm", "--entrypoint", "customer-managed-deployment-agent", names[len(names)-1], "version")
	if current := docker.must(t, "run", "--rm", names[0], "version"); old != current || old == "" {
		t.Errorf("the old name says %q, the new one %q", old, current)
	}
}

// imagedServer runs the server from its image and returns it when it is ready, with the
// administrator's token copied out of the container.
func imagedServer(t *testing.T, docker dockerCLI, bin, host string) *lab.Server {
	t.Helper()
	port, err := child.FreePort(host)
	if err != nil {
		t.Fatal(err)
	}
	server := &lab.Server{URL: "http://" + net.JoinHostPort(host, strconv.Itoa(port)), Organization: "organization"}
	docker.start(t, "image server", map[string]string{
		"IMAGE": docker.loadImage(t, image.Server(), bin)[0], "URL": server.URL, "PORT": strconv.Itoa(port),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second}
	err = harness.Until(ctx, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		t.Fatalf("the server in a container is not ready: %v", err)
	}
	server.Token = strings.TrimSpace(docker.script(t, ours(harness.FromPage(t, "image token", nil), "workflow-server")))
	return server
}

func waitAgentOnline(t *testing.T, w *harness.Site) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := harness.Until(ctx, func() (bool, error) {
		n, err := w.Online(ctx)
		return n > 0, err
	})
	if err != nil {
		t.Fatalf("the agent in a container is not online: %v", err)
	}
}

package lab

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

func testEngine(t *testing.T) *Engine {
	t.Helper()
	if reason, ok := PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	dir := filepath.Join(t.TempDir(), "e")
	engine := must.Get(StartEngine(t.Context(), dir))(t)
	bridge := linkOf(t, engine.BridgeIP)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the engine's directory was not removed: %v", err)
		}
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(dir)) {
			t.Errorf("a mount of the engine was not removed (%v):\n%s", err, mounts)
		}
		// Another engine can have taken the name and the network by now, but its bridge has another index.
		if link, err := net.InterfaceByIndex(bridge); err == nil {
			t.Errorf("the bridge %s was not removed", link.Name)
		}
	})
	return engine
}

// linkOf returns the index of the network interface that has an address.
func linkOf(t *testing.T, ip netip.Addr) int {
	t.Helper()
	for _, link := range must.Get(net.Interfaces())(t) {
		addrs, _ := link.Addrs()
		for _, addr := range addrs {
			if strings.HasPrefix(addr.String(), ip.String()+"/") {
				return link.Index
			}
		}
	}
	t.Fatalf("no network interface has the address %s", ip)
	return 0
}

func inContainer(t *testing.T, engine *Engine, image, user, script string) string {
	t.Helper()
	ctx := t.Context()
	docker := must.Get(engine.Client())(t)
	defer func() { _ = docker.Close() }()
	created, err := docker.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: image, User: user, Cmd: []string{"/bin/bash", "-euc", script}},
	})
	must.OK(t, err)
	defer func() {
		_, err := docker.ContainerRemove(context.WithoutCancel(ctx), created.ID, client.ContainerRemoveOptions{Force: true})
		if err != nil {
			t.Error(err)
		}
	}()
	wait := docker.ContainerWait(ctx, created.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	must.Get(docker.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}))(t)
	var status int64
	select {
	case result := <-wait.Result:
		status = result.StatusCode
	case err := <-wait.Error:
		t.Fatal(err)
	}
	logs := must.Get(docker.ContainerLogs(ctx, created.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true}))(t)
	defer func() { _ = logs.Close() }()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if status != 0 {
		t.Fatalf("the script ended with %d:\n%s", status, out.String())
	}
	return out.String()
}

func TestEngineRunsShell(t *testing.T) {
	engine := testEngine(t)
	image := must.Get(ShellImage(t.Context(), engine.Host))(t)
	again, err := ShellImage(t.Context(), engine.Host)
	if err != nil || again != image {
		t.Errorf("requesting the image again: %q, %v, want %q", again, err, image)
	}
	if got := inContainer(t, engine, image, "", "echo $((6*7)) | tr 4 5; whoami; sh -c 'echo $HOME'"); got != "52\nroot\n/root\n" {
		t.Errorf("the container printed %q", got)
	}

	t.Setenv("DOCKER_HOST", engine.Host)
	found := must.Get(FindEngine(t.Context()))(t)
	if found.Host != engine.Host || found.BridgeIP != engine.BridgeIP {
		t.Errorf("found the engine %s with %s, want %s with %s", found.Host, found.BridgeIP, engine.Host, engine.BridgeIP)
	}
}

// TestExecutorImage clones and deploys a program in containers of the executor image, as root and
// as other users.
func TestExecutorImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the real pulumi CLI")
	}
	engine := testEngine(t)
	tools := must.Get(PulumiTools(t.Context(), os.Stderr))(t)
	image := must.Get(ExecutorImage(t.Context(), engine.Host, tools))(t)
	server := startGitServer(t, GitOptions{Listen: net.JoinHostPort(engine.BridgeIP.String(), "0")})
	repo, _, err := server.NewRepo(t.Context(), "demo", map[string]string{"Pulumi.yaml": `name: demo
runtime: yaml
resources:
  note: {type: "lab:File", properties: {path: note.txt, content: hello}}
outputs: {size: "${note.size}"}
`})
	must.OK(t, err)
	for _, user := range []string{"", "pulumi", "4321:4321"} {
		t.Run("user "+user, func(t *testing.T) {
			out := inContainer(t, engine, image, user, `
				exec 2>&1
				export USER=${USER:-job}
				cd /tmp; git clone --quiet --depth 1 `+repo.URL+` work; cd work; mkdir state
				export PULUMI_CONFIG_PASSPHRASE=test PULUMI_BACKEND_URL=file://$PWD/state
				pulumi stack init dev; pulumi up --yes --skip-preview --non-interactive
				cat note.txt; echo; git submodule status
				test $(id -u) = 4321 || ssh -V # It refuses users without an account.
				echo done`)
			if !strings.Contains(out, "hello") || !strings.HasSuffix(out, "done\n") || strings.Contains(out, "warning") {
				t.Errorf("the container printed\n%s", out)
			}
		})
	}
}

func TestLibrariesOfThisTest(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ldd"); err != nil {
		t.Skip("ldd is not installed")
	}
	git, err := child.Find("git")
	if err != nil {
		t.Skip(err)
	}
	found := must.Get(libraries(t.Context(), git))(t)
	if !strings.Contains(strings.Join(found, " "), "libc") {
		t.Errorf("git needs %q, want the C library among them", found)
	}
	script := filepath.Join(t.TempDir(), "script")
	must.OK(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700))
	if found, err := libraries(t.Context(), script); err != nil || len(found) != 0 {
		t.Errorf("a script needs %q, %v, want nothing", found, err)
	}
}

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// socketGroup owns the engine's socket. No user of the machine is a member.
const socketGroup = 54321

// startRunners starts a server with built-in runners, and nothing else.
func startRunners(t *testing.T) (w *harness.Site, engine *lab.Engine, image string) {
	t.Helper()
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		t.Skip("built-in runners require iptables")
	}
	if value, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables"); err != nil || string(value) != "1\n" {
		t.Skip("built-in runners require that packets on bridges pass iptables")
	}
	bin, _ := harness.Programs(t)
	dir, err := os.MkdirTemp("", "runners-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, open := range []string{bin, dir} {
		must.OK(t, os.Chmod(open, 0o755))
	}
	prepare := func(e *lab.Engine) string {
		socket := strings.TrimPrefix(e.Host, "unix://")
		for _, err := range []error{os.Chmod(filepath.Dir(socket), 0o711), os.Chown(socket, 0, socketGroup), os.Chmod(socket, 0o660)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("DOCKER_HOST", e.Host)
		t.Setenv("PULUMI_AGENT_PULL_IMAGE", "false")
		return ""
	}
	releases := t.TempDir()
	publish(t, filepath.Join(releases, "box.git"), harness.YamlProgram)
	publish(t, filepath.Join(releases, "slow.git"), slowProgram)
	w, engine, image = harness.StartEngineSite(t, prepare,
		"--runners", "2", "--runners-user", "nobody", "--runners-dir", dir, "--releases", releases)
	t.Cleanup(func() {
		log, err := os.ReadFile(w.Server.LogFile)
		if t.Failed() {
			t.Logf("the server's log (%v):\n%s", err, log)
		}
		harness.Leftovers(context.Background(), t, engine) // while the agent still runs
		w.Close()
		removeNetwork(t, w, engine)
	})
	return w, engine, image
}

// removeNetwork removes the network and the packet filter rules, as docs/runners.md describes.
func removeNetwork(t *testing.T, w *harness.Site, engine *lab.Engine) {
	t.Helper()
	bridge, _ := jobBridge(t)
	id := strings.TrimPrefix(bridge, "wfr-")
	remove := exec.CommandContext(context.Background(), filepath.Join(w.Bin, "customer-managed-workflow-agent"), "network", "remove", "workflow-runners-"+id)
	remove.Env = []string{"DOCKER_HOST=" + engine.Host, "HOME=/"}
	if out, err := remove.CombinedOutput(); err != nil {
		t.Errorf("removing the network: %v\n%s", err, out)
	}
	for _, table := range [][]string{{"mangle", "PREROUTING"}, {"filter", "INPUT", "FORWARD"}, {"security", "INPUT", "FORWARD"}} {
		var all [][]string
		for _, chain := range table[1:] {
			all = append(all, []string{"-D", chain, "-i", bridge, "-j", "WORKFLOW-" + id})
		}
		for _, args := range append(all, []string{"-F", "WORKFLOW-" + id}, []string{"-X", "WORKFLOW-" + id}) {
			out, err := exec.CommandContext(context.Background(), "iptables", append([]string{"-t", table[0]}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("iptables -t %s %q: %v\n%s", table[0], args, err, out)
			}
		}
	}
}

// publish writes a bare repository with a program that git can read over HTTP. Of this machine, jobs
// reach only the server, so its releases contain the repositories.
func publish(t *testing.T, bare, program string) {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte(program), 0o600))
	harness.Say(t, dir, "git", "init", "-q", "-b", "main")
	harness.Say(t, dir, "git", "add", ".")
	harness.Say(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "program")
	harness.Say(t, dir, "git", "clone", "-q", "--bare", dir, bare)
	harness.Say(t, bare, "git", "update-server-info")
}

func repository(w *harness.Site, name string) string {
	return w.Server.URL + "/releases/" + name + ".git"
}

// probeRefused is a pre-run command that reports whether an address refuses connections at once.
func probeRefused(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("if timeout 3 bash -c '</dev/tcp/%s/%s' 2>&1 | grep -q 'Connection refused'; then echo %s is refused; else echo %[3]s is not refused; fi", host, port, address)
}

// probe is a pre-run command that reports whether an address accepts connections.
func probe(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("if timeout 3 bash -c '</dev/tcp/%s/%s' 2>/dev/null; then echo %s is open; else echo %[3]s is closed; fi", host, port, address)
}

// TestEngineBuiltInRunners checks that a server with --runners and the stock CLI are a whole product,
// what its jobs reach, and that jobs survive their agent and the server.
func TestEngineBuiltInRunners(t *testing.T) {
	w, engine, image := startRunners(t)
	t.Run("cli", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s := w.NewStack(ctx, t, "box", "dev", image, nil)
		cli := exec.CommandContext(ctx, filepath.Join(w.Tools.Dir, "pulumi"), "deployment", "run", "update", repository(w, "box"),
			"--stack", s.Name, "--git-branch", "refs/heads/main", "--suppress-stream-logs=false")
		cli.Dir, cli.Env = t.TempDir(), w.Tools.Env(w.Home, w.Server.URL, w.Server.Token)
		out, err := cli.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("+ 2 created")) {
			t.Fatalf("pulumi deployment run: %v\n%s", err, out)
		}
	})
	t.Run("reach", func(t *testing.T) { checkReach(t, w, engine, image) })
	t.Run("survive", func(t *testing.T) {
		checkSurvival(t, w, image, func() {
			must.OK(t, syscall.Kill(agentPID(t.Context(), t, w), syscall.SIGKILL))
			restartServer(t.Context(), t, w, syscall.SIGTERM)
			restartServer(t.Context(), t, w, syscall.SIGKILL)
		})
	})
}

func checkReach(t *testing.T, w *harness.Site, engine *lab.Engine, image string) {
	t.Helper()
	ctx := t.Context()
	s := w.NewStack(ctx, t, "box", "reach", image, nil)
	bridge, gateway := jobBridge(t)
	addMetadataAddress(t, bridge)
	secret := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "0.0.0.0:0"))(t)
	defer secret.Close()
	_, port, _ := net.SplitHostPort(secret.Addr().String())
	_, api, _ := net.SplitHostPort(strings.TrimPrefix(w.Server.URL, "http://"))
	closed := []string{
		net.JoinHostPort(gateway, port), net.JoinHostPort("169.254.169.254", port),
		net.JoinHostPort(startNeighbour(t, engine, image, bridge), neighbourPort),
	}
	for _, a := range hostAddresses(t, gateway) {
		closed = append(closed, net.JoinHostPort(a, port), net.JoinHostPort(a, api))
	}
	commands := []string{probe(net.JoinHostPort(gateway, api)), fmt.Sprintf(
		`bash -c 'exec 3<>/dev/tcp/%s/%s; printf "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:%[2]s\r\nConnection: close\r\n\r\n" >&3; head -1 <&3'`, gateway, api,
	)}
	var probes []string // at once, because each takes seconds
	for _, a := range closed {
		probes = append(probes, "("+probe(a)+") &")
	}
	commands = append(commands, strings.Join(append(probes, "wait"), " "), probeRefused(closed[0]))
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "preview", repository(w, "box"), commands...))
	log := s.Log(ctx, t, d)
	if d.Status != "succeeded" || !strings.Contains(log, net.JoinHostPort(gateway, api)+" is open") || !strings.Contains(log, "403 Forbidden") {
		t.Errorf("the deployment ended as %+v; its log:\n%s", d, log)
	}
	if !strings.Contains(log, "\n"+closed[0]+" is refused\n") {
		t.Errorf("a connection to another port of the machine does not fail at once; the log:\n%s", log)
	}
	for _, a := range closed {
		if !strings.Contains(log, "\n"+a+" is closed\n") {
			t.Errorf("a job can reach %s; its log:\n%s", a, log)
		}
	}
}

const neighbourPort = "5555"

// startNeighbour starts a container that listens on the jobs' network, and returns its address.
func startNeighbour(t *testing.T, engine *lab.Engine, image, bridge string) string {
	t.Helper()
	docker := newDockerCLI(t, engine)
	id := docker.must(t, "run", "--detach", "--network", "workflow-runners-"+strings.TrimPrefix(bridge, "wfr-"), "--entrypoint", "busybox", image,
		"nc", "-ll", "-p", neighbourPort, "-e", "echo", "hi")
	t.Cleanup(func() {
		if _, err := docker.run(context.Background(), "rm", "--force", id); err != nil {
			t.Error(err)
		}
	})
	docker.must(t, "exec", id, "timeout", "60", "sh", "-c", "until busybox nc -w 1 127.0.0.1 "+neighbourPort+" </dev/null; do sleep 0.1; done")
	return docker.must(t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id)
}

// checkSurvival hurts the product while a job runs. The job must finish and must not run twice.
func checkSurvival(t *testing.T, w *harness.Site, image string, hurt func()) {
	t.Helper()
	ctx := t.Context()
	s := w.NewStack(ctx, t, "box", "survive", image, nil)
	d := s.Deploy(ctx, t, "update", repository(w, "slow"))
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := harness.Until(waiting, func() (bool, error) {
		if now, err := s.Get(ctx, d); err != nil || now.Status == "failed" {
			return false, fmt.Errorf("the deployment is %+v: %w", now, err)
		}
		log := s.Log(ctx, t, d)
		return strings.Contains(log, "lab:index:Sleep slow creating") && strings.Contains(log, "The job was started."), nil
	}); err != nil {
		t.Fatalf("the update did not begin: %v\n%s", err, s.Log(ctx, t, d))
	}
	hurt()
	d = s.Finish(ctx, t, d)
	log := s.Log(ctx, t, d)
	if d.Status != "succeeded" || strings.Count(log, "The job was started.") != 1 || strings.Count(log, "+ 4 created") != 1 {
		t.Errorf("it ended as %+v; its log:\n%s", d, log)
	}
	var history struct{ Updates []json.RawMessage }
	must.OK(t, w.Server.Call(ctx, http.MethodGet, "/api/stacks/"+s.Name+"/updates", nil, &history))
	if len(history.Updates) != 1 {
		t.Errorf("the stack has %d updates, want one", len(history.Updates))
	}
}

func restartServer(ctx context.Context, t *testing.T, w *harness.Site, signal syscall.Signal) {
	t.Helper()
	must.OK(t, w.Server.Process.Stop(signal, 30*time.Second))
	must.OK(t, w.RestartServer(ctx))
}

var startedAgent = regexp.MustCompile(`started the built-in runners.* pid=(\d+)`)

// agentPID returns the process of the newest agent.
func agentPID(ctx context.Context, t *testing.T, w *harness.Site) (pid int) {
	t.Helper()
	waiting, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	must.OK(t, harness.Until(waiting, func() (bool, error) {
		text, err := os.ReadFile(w.Server.LogFile)
		all := startedAgent.FindAllSubmatch(text, -1)
		if len(all) == 0 {
			return false, err
		}
		_, err = fmt.Sscan(string(all[len(all)-1][1]), &pid)
		return true, err
	}))
	return pid
}

// jobBridge returns the interface of the jobs' network and its address.
func jobBridge(t *testing.T) (name, address string) {
	t.Helper()
	interfaces := must.Get(net.Interfaces())(t)
	for _, i := range interfaces {
		if !strings.HasPrefix(i.Name, "wfr-") {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil || len(addresses) == 0 {
			t.Fatalf("%s has the addresses %v, %v", i.Name, addresses, err)
		}
		ip, _, err := net.ParseCIDR(addresses[0].String())
		if err != nil {
			t.Fatal(err)
		}
		return i.Name, ip.String()
	}
	t.Fatal("the jobs have no bridge")
	return "", ""
}

// addMetadataAddress gives this machine the address of a metadata service, on the jobs' bridge.
func addMetadataAddress(t *testing.T, bridge string) {
	t.Helper()
	harness.Say(t, "", "ip", "addr", "add", "169.254.169.254/32", "dev", bridge)
	t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), "ip", "addr", "del", "169.254.169.254/32", "dev", bridge).Run()
	})
}

// hostAddresses returns this machine's other IPv4 addresses, without loopback.
func hostAddresses(t *testing.T, except string) (out []string) {
	t.Helper()
	addresses := must.Get(net.InterfaceAddrs())(t)
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err == nil && ip.To4() != nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && ip.String() != except {
			out = append(out, ip.String())
		}
	}
	return out
}

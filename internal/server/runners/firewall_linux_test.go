package runners

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inNamespace makes the test binary continue a test in its own network.
const inNamespace = "WORKFLOW_TEST_NAMESPACE"

// TestRefusal checks that connections to other ports of the machine fail at once, and that they do
// not succeed if another program flushes the table that refuses them.
func TestRefusal(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		for _, name := range []string{"unshare", "ip", "iptables-restore"} {
			if _, err := exec.LookPath(name); err != nil || os.Geteuid() != 0 {
				t.Skip("a separate network requires root, unshare, ip and iptables")
			}
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", os.Args[0], "-test.run=^TestRefusal$", "-test.v")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	say(t, "mount", "-t", "tmpfs", "none", "/run")
	for _, line := range []string{
		"link set lo up", "netns add job", "link add wfr-t type bridge", "addr add 172.31.9.1/24 dev wfr-t", "link set wfr-t up",
		"link add v0 type veth peer name v1 netns job", "link set v0 master wfr-t up",
		"-n job addr add 172.31.9.2/24 dev v1", "-n job link set v1 up",
	} {
		say(t, "ip", strings.Fields(line)...)
	}
	api, other := listen(t), listen(t)
	f := firewall{
		bridge: "wfr-t", chain: "WORKFLOW-t", subnet: netip.MustParsePrefix("172.31.9.0/24"),
		gateway: netip.MustParseAddr("172.31.9.1"), only: netip.MustParseAddr("172.31.9.1"), port: api,
		cannotRefuse: func(err error) { t.Errorf("connections cannot be refused: %v", err) },
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Earlier versions dropped the packets, and their rules remain until all of the new ones work.
	say(t, "iptables", "-t", "mangle", "-N", f.chain)
	say(t, "iptables", "-t", "mangle", "-A", f.chain, "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DROP")
	say(t, "iptables", "-t", "mangle", "-I", "PREROUTING", "-i", f.bridge, "-j", f.chain)
	if reason := applyHindered(t, f); reason == nil {
		t.Error("the rules that refuse were applied without the program that applies them")
	}
	if err := dialFromJob(t, other); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to another port after an upgrade failed halfway: %v, want a timeout", err)
	}
	for range 2 { // repeatedly, as every 30 seconds
		if err := f.apply(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := dialFromJob(t, api); err != nil {
		t.Errorf("connecting to the API: %v", err)
	}
	if err := dialFromJob(t, other); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to another port: %v, want that it is refused", err)
	}
	say(t, "iptables", "-F", "INPUT")
	if err := dialFromJob(t, other); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to another port after the table filter was flushed: %v, want a timeout", err)
	}
	if err := f.apply(ctx); err != nil {
		t.Fatal(err)
	}
	if err := dialFromJob(t, other); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to another port after the rules were restored: %v, want that it is refused", err)
	}
	// Programs for several uplinks and tunnels set the marks of all packets.
	for _, chain := range []string{"PREROUTING", "INPUT"} {
		say(t, "iptables", "-t", "mangle", "-A", chain, "-j", "MARK", "--set-mark", "0")
		if err := dialFromJob(t, other); err == nil {
			t.Errorf("connecting to another port succeeded after another program had removed the mark in %s", chain)
		}
	}
	if err := dialFromJob(t, api); err != nil {
		t.Errorf("connecting to the API at the end: %v", err)
	}
	testWithoutSecurity(t, f, api, other)
}

// testWithoutSecurity applies the rules with an iptables-restore that behaves as on a kernel without
// the table security, on which no earlier rules are in the other tables.
func testWithoutSecurity(t *testing.T, f firewall, api, other string) {
	t.Helper()
	program, err := exec.LookPath("iptables-restore")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"mangle", "filter", "security"} {
		say(t, "iptables", "-t", table, "-F")
		say(t, "iptables", "-t", table, "-X")
	}
	if err := dialFromJob(t, other); err != nil {
		t.Fatalf("without rules: %v", err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nrules=$(cat)\ncase $rules in *'*security'*) echo no table security >&2; exit 2;; esac\nprintf '%s\\n' \"$rules\" | exec " + program + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-restore"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	reason := ""
	f.cannotRefuse = func(err error) { reason = err.Error() }
	if err := f.apply(t.Context()); err != nil || !strings.Contains(reason, "no table security") {
		t.Fatalf("without the table security: %v, reported %q", err, reason)
	}
	if err := dialFromJob(t, api); err != nil {
		t.Errorf("connecting to the API without the table security: %v", err)
	}
	if err := dialFromJob(t, other); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to another port without the table security: %v, want a timeout", err)
	}
}

func say(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// listen accepts connections on all addresses, and returns the port.
func listen(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// dialFromJob connects to a port of the machine from the namespace of a job.
func dialFromJob(t *testing.T, port string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", "job", "bash", "-c", "timeout 2 bash -c '</dev/tcp/172.31.9.1/"+port+"'")
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "Connection refused") {
		return syscall.ECONNREFUSED
	}
	return err
}

// applyHindered applies the rules while no rule can be inserted into the chains of other programs, and
// returns the reason why connections cannot be refused.
func applyHindered(t *testing.T, f firewall) (reason error) {
	t.Helper()
	f.cannotRefuse = func(err error) { reason = err }
	real, err := exec.LookPath("iptables")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \" $* \" in *' -I '*) exit 4 ;; esac\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(dir+"/iptables", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", dir+":"+path)
	defer t.Setenv("PATH", path)
	if err := f.apply(t.Context()); err != nil {
		t.Errorf("applying only the rules that drop: %v", err)
	}
	return reason
}

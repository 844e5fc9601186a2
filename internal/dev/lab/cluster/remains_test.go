package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// ownerVariable makes the test binary the owner of a cluster instead of running tests.
const ownerVariable = "CLUSTER_TEST_OWNER"

// ownCluster starts a cluster, prints its directory, and never returns.
func ownCluster(string) {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Dir)
	select {}
}

// TestKilledOwner tests that nothing of a cluster remains when its owner is killed while a pod runs.
func TestKilledOwner(t *testing.T) {
	need(t) // so that Kubernetes is built
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	stdout := must.Get(owner.StdoutPipe())(t)
	must.OK(t, owner.Start())
	defer func() {
		_ = owner.Process.Kill()
		_ = owner.Wait()
	}()
	line := must.Get(bufio.NewReader(stdout).ReadString('\n'))(t)
	c := must.Get(Open(strings.TrimSpace(line)))(t)
	createPod(t, c, "default", "remains", shell(t, c), "while :; do sleep 1; done")
	kubectl(t, c, "wait", "--timeout=60s", "--for=condition=Ready", "pod/remains")
	if got := remains(t, c); len(got) < 4 {
		t.Fatalf("of a running cluster, only these are found: %q", got)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.nodeReady(t.Context()); err != nil {
		t.Errorf("a process that does not own the cluster closed it: %v", err)
	}

	must.OK(t, owner.Process.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var left []string
	err := child.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		left = remains(t, c)
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("after the owner was killed, these remain: %q", left)
	}
}

// remains lists the traces of a cluster on this machine.
func remains(t *testing.T, c *Cluster) []string {
	t.Helper()
	var found []string
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		found = append(found, c.Dir)
	}
	if _, err := net.InterfaceByName(c.place.Link()); err == nil {
		found = append(found, c.place.Link())
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + c.place.Group())
	alone, _ := filepath.Glob("/sys/fs/cgroup/" + c.place.Group())
	found = append(found, append(groups, alone...)...)
	mounts := must.Get(os.ReadFile("/proc/self/mountinfo"))(t)
	if bytes.Contains(mounts, []byte(c.Dir)) {
		found = append(found, "a mount")
	}
	processes := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	for _, process := range processes {
		command, _ := os.ReadFile(filepath.Join(process, "cmdline")) // fails if the process has ended
		groups, _ := os.ReadFile(filepath.Join(process, "cgroup"))
		if bytes.Contains(command, []byte(c.Dir)) || bytes.Contains(groups, []byte(c.place.Group()+"/")) {
			found = append(found, fmt.Sprintf("%s: %q", process, command))
		}
	}
	return found
}

package procguard_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/sys/procguard"
)

const childVariable = "TEST_PROCGUARD_SECRET"

// TestMain makes the test binary act as the protected process if childVariable is set.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv("TEST_PROCGUARD_OPEN") == "" {
		if err := procguard.Protect(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test is done
}

// TestProtect inspects a protected process from another process of the same user.
func TestProtect(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lets processes of one user inspect each other")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to start two processes of another user")
	}
	self, err := os.Open("/proc/self/exe") // the other user might lack access to the file
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	for _, open := range []bool{false, true} {
		nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3")
		cmd.ExtraFiles, cmd.SysProcAttr, cmd.Dir = []*os.File{self}, nobody, "/"
		cmd.Env = []string{childVariable + "=planted-secret"}
		if open {
			cmd.Env = append(cmd.Env, "TEST_PROCGUARD_OPEN=1")
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 64)
		n, _ := out.Read(line)
		if string(line[:n]) != "ready\n" {
			t.Fatalf("the process printed %q", line[:n])
		}
		look := exec.CommandContext(t.Context(), "cat", fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid), fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		look.SysProcAttr, look.Dir = nobody, "/"
		seen, lookErr := look.CombinedOutput()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if sees := bytes.Contains(seen, []byte("planted-secret")); sees != open {
			t.Errorf("protected: %v; another process of the user can read the secret: %v (%v)\n%s", !open, sees, lookErr, strings.ToValidUTF8(string(seen), "?"))
		}
	}
}

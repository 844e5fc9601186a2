package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// memory is the limit of attackers.
const memory = 64 << 20

// attackVariable makes the test binary enter the sandbox and attack.
const attackVariable = "WORKFLOW_ESC_TEST_ATTACK"

func TestMain(m *testing.M) {
	name := os.Getenv(attackVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	limits := Limits{Memory: memory, CPU: 10 * time.Second}
	if name == "take time" {
		limits.CPU = 0
	}
	attack := attacks()[strings.TrimSuffix(name, threadSuffix)].do
	// A thread that exists before the sandbox must be in it, too.
	before := make(chan func() error)
	results := make(chan error)
	go func() {
		runtime.LockOSThread()
		results <- (<-before)()
	}()
	if entered, err := Enter(limits); err != nil || !entered {
		fmt.Println("not in the sandbox:", entered, err)
		os.Exit(1)
	}
	var err error
	if strings.HasSuffix(name, threadSuffix) {
		before <- attack
		err = <-results
	} else {
		err = attack()
	}
	switch {
	case err == nil:
		fmt.Println(worked)
	case errors.Is(err, unix.EPERM):
		fmt.Println(forbidden)
	default:
		fmt.Println(err)
	}
}

const threadSuffix = " from another thread"

// What an attack prints. A killed one prints nothing.
const (
	worked    = "it worked"
	forbidden = "it was forbidden"
	killed    = "killed by SIGSYS"
	ended     = "ended by itself or the kernel"
)

// TestAttacks lets processes in the sandbox try what they must not be able to do.
func TestAttacks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	passed, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	cases := attacks()
	for _, name := range []string{"read a file", "connect", "fork"} {
		cases[name+threadSuffix] = cases[name]
	}
	for name, one := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), self)
			command.Env = []string{attackVariable + "=" + name}
			command.ExtraFiles = []*os.File{passed}
			out, err := command.Output()
			got := strings.TrimSpace(string(out))
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && got == "" {
				got = ended
				if exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS {
					got = killed
				}
			}
			if got != one.want {
				t.Errorf("%q (%v), want %q", got, err, one.want)
			}
			if used := command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; used > (memory+margin)>>10 {
				t.Errorf("the process used %d KiB of memory", used)
			}
		})
	}
}

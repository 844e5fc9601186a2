// Package program is the runner for executor tests. It runs the actions of its launch document in
// order, either as a small static binary or as a function in the test's process.
package program

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ExitNoLaunch is the exit code for a missing or invalid launch document. In that case, no action
// has run.
const ExitNoLaunch = 64

// ExitSignals is added to the number of interrupts to form the exit code of
// [Action.CountInterrupts].
const ExitSignals = 100

// Launch is the launch document.
type Launch struct {
	Secret  string   `json:"secret"` // must be visible only to the program
	Actions []Action `json:"actions"`
}

// Action is one action. Exactly one field must be set.
type Action struct {
	Print     string `json:"print,omitempty"`     // write the text to standard output
	PrintErr  string `json:"printErr,omitempty"`  // write the text to standard error
	Lines     int    `json:"lines,omitempty"`     // write this many numbered lines to standard output
	WriteFile string `json:"writeFile,omitempty"` // write this file in the job directory; its content is its name
	Spool     int    `json:"spool,omitempty"`     // write this many bytes of [Noise] as [SpoolFile]
	Result    string `json:"result,omitempty"`    // write this text as result.json
	Exit      *int   `json:"exit,omitempty"`      // exit with this code
	// CountInterrupts waits for an interrupt, and then until none arrives for this duration. The
	// program exits with ExitSignals plus the number of interrupts.
	CountInterrupts time.Duration `json:"countInterrupts,omitempty"`
	Pause           time.Duration `json:"pause,omitempty"`      // do nothing for this duration
	Forever         bool          `json:"forever,omitempty"`    // ignore interrupts until killed
	Allocate        int           `json:"allocate,omitempty"`   // allocate this many MiB of memory
	WorkingDir      bool          `json:"workingDir,omitempty"` // print the working directory
	Child           bool          `json:"child,omitempty"`      // start a child that leaves the session and ignores interrupts
	Environ         bool          `json:"environ,omitempty"`    // print the environment, one entry per line
	// Workspace prints the names of the files in the workspace, then "in the workspace" or "no workspace",
	// and adds a file with this name.
	Workspace string `json:"workspace,omitempty"`
}

// SpoolFile is the file of [Action.Spool] in the job directory.
const SpoolFile = "spool/step-0001-0000000000000000.log"

// Noise returns n bytes that cannot be compressed. They are the same for each call.
func Noise(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(out) // never fails
	return out
}

// Lines returns the output of [Action.Lines].
func Lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %06d\n", i)
	}
	return b.String()
}

// Host gives the program access to its environment.
type Host struct {
	Stdin      io.Reader
	Stdout     io.Writer
	Stderr     io.Writer
	Interrupts <-chan struct{}
	Killed     <-chan struct{} // closed to kill a program that runs as a function
	WriteFile  func(name string, data []byte) error
	Environ    func() []string
	StartChild func() error
}

// Run runs the actions of the launch document and returns the exit code.
func Run(h Host) int {
	data, err := io.ReadAll(h.Stdin)
	var launch Launch
	if err != nil || json.Unmarshal(data, &launch) != nil {
		return ExitNoLaunch
	}
	for _, a := range launch.Actions {
		code, done, err := run(h, a)
		if err != nil {
			fmt.Fprintln(h.Stderr, "test runner:", err)
			return 1
		}
		if done {
			return code
		}
	}
	return 0
}

func run(h Host, a Action) (code int, done bool, err error) {
	switch {
	case a.Print != "":
		_, err = io.WriteString(h.Stdout, a.Print)
	case a.PrintErr != "":
		_, err = io.WriteString(h.Stderr, a.PrintErr)
	case a.Lines > 0:
		_, err = io.WriteString(h.Stdout, Lines(a.Lines))
	case a.WriteFile != "":
		err = h.WriteFile(a.WriteFile, []byte(a.WriteFile))
	case a.Spool > 0:
		err = h.WriteFile(SpoolFile, Noise(a.Spool))
	case a.Result != "":
		err = h.WriteFile("result.json", []byte(a.Result))
	case a.Exit != nil:
		return *a.Exit, true, nil
	case a.CountInterrupts > 0:
		return countInterrupts(h, a.CountInterrupts), true, nil
	case a.Pause > 0:
		time.Sleep(a.Pause)
	case a.Forever:
		for {
			select {
			case <-h.Interrupts:
			case <-h.Killed:
				return 0, true, nil
			}
		}
	case a.Allocate > 0:
		var hoard [][]byte
		for range a.Allocate {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			hoard = append(hoard, block)
		}
		_, err = fmt.Fprintln(h.Stdout, "allocated", len(hoard))
	case a.Child:
		err = h.StartChild()
	case a.WorkingDir:
		var dir string
		if dir, err = os.Getwd(); err == nil {
			_, err = fmt.Fprintln(h.Stdout, dir)
		}
	case a.Environ:
		_, err = fmt.Fprintln(h.Stdout, strings.Join(h.Environ(), "\n"))
	case a.Workspace != "":
		err = useWorkspace(h, a.Workspace)
	}
	return 0, false, err
}

// EnvWorkspace is the variable with the path of the workspace.
const EnvWorkspace = "WORKFLOW_RUNNER_WORKSPACE"

func useWorkspace(h Host, name string) error {
	dir := ""
	for _, entry := range h.Environ() {
		if value, ok := strings.CutPrefix(entry, EnvWorkspace+"="); ok {
			dir = value
		}
	}
	if dir == "" {
		_, err := fmt.Fprintln(h.Stdout, "no workspace")
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		fmt.Fprintln(h.Stdout, "found", entry.Name())
	}
	fmt.Fprintln(h.Stdout, "in the workspace")
	return os.WriteFile(filepath.Join(dir, name), nil, 0o600)
}

func countInterrupts(h Host, quiet time.Duration) int {
	select {
	case <-h.Interrupts:
	case <-h.Killed:
		return 0
	}
	for n := 1; ; n++ {
		select {
		case <-h.Interrupts:
		case <-h.Killed:
			return 0
		case <-time.After(quiet):
			return ExitSignals + n
		}
	}
}

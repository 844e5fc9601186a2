package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Hold is a directory through which a test and the shell scripts of a job pause each other. Dir is its path in the
// scripts, and At its path for the test.
type Hold struct{ Dir, At string }

// Wait returns shell text that waits while name is held. name can be a shell expression.
func (h Hold) Wait(name string) string {
	return strings.NewReplacer("DIR", h.Dir, "NAME", name).Replace(`if [ -e "DIR/hold-NAME" ]; then
	echo $PPID > "DIR/held.new" && mv "DIR/held.new" "DIR/held"
	while [ -e "DIR/hold-NAME" ]; do sleep 0.05; done
fi
`)
}

// Arm returns shell text that holds name.
func (h Hold) Arm(name string) string { return `touch "` + h.Dir + "/hold-" + name + "\"\n" }

// Git returns a stand-in for the program git, which waits while the name of its command is held.
func (h Hold) Git(git string) string {
	return "#!/bin/sh\n" + h.Wait("$1") + "exec " + git + " \"$@\"\n"
}

// Set holds name.
func (h Hold) Set(name string) error {
	return os.WriteFile(filepath.Join(h.At, "hold-"+name), nil, 0o600)
}

// Reached waits until a script waits, and returns the ID of its parent process.
func (h Hold) Reached(ctx context.Context) (ppid string, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err = Until(ctx, func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(h.At, "held"))
		ppid = strings.TrimSpace(string(text))
		return err == nil, nil
	})
	return ppid, err
}

// Release lets all scripts continue.
func (h Hold) Release() error {
	files, err := filepath.Glob(filepath.Join(h.At, "h[eo]ld*"))
	for _, file := range files {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return err
}

// Unlocked waits until no runner holds the workspace in a directory. A runner gives a workspace back only after it has
// reported its result.
func Unlocked(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return Until(ctx, func() (bool, error) {
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			return true, nil // there is no workspace, or a test has replaced it
		}
		defer lock.Close() // which releases the lock
		return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
	})
}

// A WorkspaceStage is a stage of a job that uses a workspace, for tests that kill something at this stage.
type WorkspaceStage struct {
	Name string // as in docs/faults.md
	// Held is what to hold: the name of a command of git, or [HeldStep].
	Held string
	// Late is whether a step of the job must arm the hold, because the same command comes earlier, too.
	Late bool
}

// HeldStep is the name at which a step of the job waits.
const HeldStep = "step"

// WorkspaceStages are the stages in their order.
var WorkspaceStages = []WorkspaceStage{
	{Name: "taken", Held: "fetch"},
	{Name: "cleaned", Held: "ls-files"},
	{Name: "running", Held: HeldStep},
	{Name: "given back", Held: "ls-files", Late: true},
}

// Script returns the text for the end of a step.
func (s WorkspaceStage) Script(h Hold) string {
	if s.Late {
		return h.Arm(s.Held)
	}
	return h.Wait(HeldStep)
}

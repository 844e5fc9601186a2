// Package pulumi knows how a deployment's operations are spelled for the pulumi
// command line, and what a project looks like.
package pulumi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"workflowagent/internal/workflow"
)

// ExitNoChanges is the exit code by which pulumi says that there were changes
// although --expect-no-changes was given.
const ExitNoChanges = 7

// quiet are the flags of every call: no questions, and no escape sequences in a
// log that is shown in terminals and browsers.
var quiet = []string{"--non-interactive", "--color", "never"}

// change are the flags of every operation that changes something. The preview is
// skipped because nobody is there to look at it, and because an operation of the
// deployment must show up as its first update.
var change = []string{"--yes", "--skip-preview"}

// Operation returns the arguments that run op on a stack.
func Operation(op workflow.Operation, stack string) ([]string, error) {
	var args []string
	switch op {
	case workflow.OperationUpdate:
		args = append([]string{"up"}, change...)
	case workflow.OperationPreview:
		args = []string{"preview"}
	case workflow.OperationRefresh:
		args = append([]string{"refresh"}, change...)
	case workflow.OperationDestroy:
		args = append([]string{"destroy"}, change...)
	case workflow.OperationDetectDrift:
		args = []string{"refresh", "--preview-only", "--expect-no-changes"}
	case workflow.OperationRemediateDrift:
		args = append([]string{"up", "--refresh"}, change...)
	default:
		return nil, fmt.Errorf("the runner does not know the operation %q", op)
	}
	return append(append(args, "--stack="+stack), quiet...), nil
}

// Install returns the arguments that install what a project depends on.
func Install() []string { return append([]string{"install"}, quiet...) }

// RemoveStack returns the arguments that delete an empty stack and keep its
// configuration file, which is part of the repository and not of the stack.
func RemoveStack(stack string) []string {
	return append([]string{"stack", "rm", "--yes", "--preserve-config", "--stack=" + stack}, quiet...)
}

// Find returns the path of the pulumi command line.
func Find() (string, error) {
	path, err := exec.LookPath("pulumi")
	if err != nil {
		return "", errors.New("pulumi is not installed where the job runs: use an image that has the pulumi CLI in its PATH")
	}
	return filepath.Abs(path)
}

// projectFiles are the names of a project file that pulumi looks for.
var projectFiles = []string{"Pulumi.yaml", "Pulumi.yml", "Pulumi.json"}

// ErrNoProject is the cause of the error of [FindProject] when there is none.
var ErrNoProject = errors.New("no project file")

// FindProject returns the project file that pulumi would use in dir: the nearest
// one in it or above it. It does not look above root, the real path of the
// checkout, where another project may lie that is not the deployment's. An empty
// root means that the program is part of the image.
func FindProject(root, dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		for _, name := range projectFiles {
			path := filepath.Join(at, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
		if at == root || at == filepath.Dir(at) {
			return "", &noProjectError{root: root, dir: dir}
		}
	}
}

type noProjectError struct{ root, dir string }

// Error says where the project file was looked for, in the words of the settings.
func (e *noProjectError) Error() string {
	if e.root == "" {
		return fmt.Sprintf("no Pulumi.yaml in the directory %s of the image: check the working directory or add a source in the deployment settings", e.dir)
	}
	where := "the root directory"
	if rel, err := filepath.Rel(e.root, e.dir); err == nil && rel != "." {
		where = fmt.Sprintf("the directory %q", rel)
	}
	return "no Pulumi.yaml in " + where + " of the repository: check the repository directory and branch in the deployment settings"
}

// Unwrap returns [ErrNoProject].
func (e *noProjectError) Unwrap() error { return ErrNoProject }

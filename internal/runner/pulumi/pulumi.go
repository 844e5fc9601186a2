// Package pulumi builds pulumi command lines for a deployment's operations, and reads project
// files.
package pulumi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"workflowagent/internal/workflow"
)

// ExitNoChanges is pulumi's exit code if changes exist despite --expect-no-changes.
const ExitNoChanges = 7

// quiet contains the flags for every call. They disable prompts and escape sequences, because
// terminals and browsers display the log.
var quiet = []string{"--non-interactive", "--color", "never"}

// change contains the flags for every operation that changes anything. They skip the preview,
// because it has no reader and because a deployment's operation must be its first update.
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
		return nil, fmt.Errorf("unknown operation %q", op)
	}
	return append(append(args, "--stack="+stack), quiet...), nil
}

// Install returns the arguments that install the dependencies of a project.
func Install() []string { return append([]string{"install"}, quiet...) }

// Analyze returns the arguments that evaluate a policy pack on a state in a file. They need no server and no login.
func Analyze(stateFile, packDir, configFile string) []string {
	args := []string{"policy", "analyze", "--file", stateFile, "--policy-pack", packDir, "--policy-pack-config", configFile, "--json"}
	return append(args, quiet...)
}

// RemoveStack returns the arguments that delete an empty stack. They keep the stack's configuration
// file, which belongs to the repository.
func RemoveStack(stack string) []string {
	return append([]string{"stack", "rm", "--yes", "--preserve-config", "--stack=" + stack}, quiet...)
}

var errMissing = errors.New("pulumi is not installed where the job runs: use an image with the pulumi CLI in its PATH")

// Find returns the path of the pulumi program.
func Find() (string, error) {
	path, err := exec.LookPath("pulumi")
	if err != nil {
		return "", errMissing
	}
	return filepath.Abs(path)
}

var projectFiles = []string{"Pulumi.yaml", "Pulumi.yml", "Pulumi.json"}

// ErrNoProject is wrapped by the errors that [FindProject] returns for a missing project file.
var ErrNoProject = errors.New("no project file")

// FindProject returns the project file that pulumi would use in dir: the nearest one in dir or its
// parents. It does not search above root, the real path of the checkout, where a file could belong
// to another deployment. If root is "", the program is part of the image.
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

// Error returns a message that names the searched directory as the settings do.
func (e *noProjectError) Error() string {
	if e.root == "" {
		return fmt.Sprintf("the deployment has no source, and the directory %s contains no Pulumi.yaml: set a repository in the deployment settings, or use an image with a program and set its working directory", e.dir)
	}
	where := "the root directory"
	if rel, err := filepath.Rel(e.root, e.dir); err == nil && rel != "." {
		where = fmt.Sprintf("the directory %q", rel)
	}
	return "no Pulumi.yaml in " + where + " of the repository: check the repository directory and branch in the deployment settings" +
		` (--folder and --branch of "pulumi deployment settings edit")`
}

// Unwrap returns [ErrNoProject].
func (e *noProjectError) Unwrap() error { return ErrNoProject }

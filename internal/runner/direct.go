package runner

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"workflowagent/internal/runner/pulumi"
	"workflowagent/internal/workflow"
)

// A command of ours that only becomes another program need not be started first:
// that costs a start of this program, which is several times what the rest of such
// a step costs. So the runner starts the other program itself when nothing stands
// in the way. Whatever does is left to the command, whose words it is to say so.

// directly returns the program that a step's command would become and what the
// command would print before; nil if the command itself has to run.
func (p *Params) directly(run string, env []string) (cmd *exec.Cmd, says string) {
	root, dir, err := p.program()
	if err != nil {
		return nil, ""
	}
	var name string
	var args []string
	switch op, isPulumi := strings.CutPrefix(run, workflow.RunPulumi+" "); {
	case run == workflow.RunPreRun:
		shell := strings.Fields(p.Shell)
		if len(shell) == 0 {
			shell = []string{"bash"}
		}
		name, args = shell[0], append(shell[1:], "-c", p.Command)
		says = preRunLine(p.Command)
	case isPulumi && !p.Remediate:
		if _, err := pulumi.FindProject(root, dir); err != nil {
			return nil, ""
		}
		if args, err = pulumi.Operation(workflow.Operation(op), p.Stack); err != nil {
			return nil, ""
		}
		name = "pulumi"
	default:
		return nil, ""
	}
	path, ok := lookPath(name, env)
	if !ok {
		return nil, ""
	}
	cmd = exec.Command(path, args...) //nolint:noctx // only the stopper ends it
	cmd.Args[0] = filepath.Base(path)
	cmd.Dir, cmd.Env = dir, append(env, "PWD="+dir)
	return cmd, says
}

// preRunLine shows the command in the log, as a shell with -x does.
func preRunLine(command string) string {
	return fmt.Sprintln("+ " + strings.ReplaceAll(strings.TrimSpace(command), "\n", "\n+ "))
}

// lookPath finds a program on the PATH of env, the last one in it, as the process
// with that environment would. Only absolute directories are looked at.
func lookPath(name string, env []string) (path string, ok bool) {
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	if strings.Contains(name, "/") {
		return "", false
	}
	var list string
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			list = value
		}
	}
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			return "", false
		}
		if path := filepath.Join(dir, name); executable(path) {
			return path, true
		}
	}
	return "", false
}

// executable reports whether the file at an absolute path can be run.
func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

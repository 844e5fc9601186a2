package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/checkup"
	"workflowagent/internal/termtext"
)

// languages lists the requirements of each Pulumi language: its language host, which is included in
// the CLI, and one of its runtimes.
var languages = []struct {
	name, host string
	runtimes   []string
}{
	{"yaml", "pulumi-language-yaml", nil},
	{"nodejs", "pulumi-language-nodejs", []string{"node", "bun"}},
	{"python", "pulumi-language-python", []string{"python3", "python"}},
	{"go", "pulumi-language-go", []string{"go"}},
	{"dotnet", "pulumi-language-dotnet", []string{"dotnet"}},
	{"java", "pulumi-language-java", []string{"java"}},
}

// checkPrograms searches the PATH of jobs of the process target. For jobs in containers, the image
// provides the programs.
func (e *examination) checkPrograms(ctx context.Context) checkup.Result {
	path := jobPath(e.opts.Environ)
	var versions []string
	for _, p := range []struct{ name, arg, advice string }{
		{"pulumi", "version", "install the pulumi CLI in a directory of the agent's PATH; a service has its own PATH"},
		{"git", "--version", "install git in a directory of the agent's PATH"},
	} {
		file := find(path, p.name)
		if file == "" {
			return checkup.Fail(p.name+" is not on the PATH of jobs, which is "+path, p.advice)
		}
		version, err := versionOf(ctx, file, p.arg, path)
		if err != nil {
			return checkup.Fail(fmt.Sprintf("%s does not run: %v", file, checkup.Reason(err)), p.advice)
		}
		versions = append(versions, version)
	}
	var usable, details []string
	for _, l := range languages {
		switch {
		case find(path, l.host) == "":
			details = append(details, l.name+": "+l.host+" is missing")
		case l.runtimes != nil && find(path, l.runtimes...) == "":
			details = append(details, l.name+": "+strings.Join(l.runtimes, " or ")+" is missing")
		default:
			usable = append(usable, l.name)
		}
	}
	if len(usable) == 0 {
		return checkup.Fail("no language can run: "+strings.Join(versions, ", ")+" are on the PATH of jobs",
			"install the whole pulumi CLI with its language hosts, and the runtime of your programs", details...)
	}
	return checkup.OK(fmt.Sprintf("%s; programs in %s can run", strings.Join(versions, ", "), strings.Join(usable, ", ")), details...)
}

// jobPath returns the PATH for the jobs of an agent with the given environment.
func jobPath(environ []string) string {
	for _, entry := range process.PassedOn(environ) {
		if value, isPath := strings.CutPrefix(entry, "PATH="); isPath {
			return value
		}
	}
	return ""
}

func find(path string, names ...string) string {
	for _, name := range names {
		for _, dir := range filepath.SplitList(path) {
			if file := filepath.Join(dir, name); filepath.IsAbs(dir) {
				if _, err := exec.LookPath(file); err == nil {
					return file
				}
			}
		}
	}
	return ""
}

func versionOf(ctx context.Context, file, arg, path string) (version string, err error) {
	home, err := os.MkdirTemp("", "workflow-doctor-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	cmd := exec.CommandContext(ctx, file, arg)
	cmd.Env = []string{"PATH=" + path, "HOME=" + home, "PULUMI_SKIP_UPDATE_CHECK=true"}
	cmd.WaitDelay = trialCleanup
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	name := filepath.Base(file)
	return name + " " + strings.TrimPrefix(termtext.OneLine(line, 0), name+" version "), nil
}

package environ

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// fixedPath is the path that Pulumi's documentation gives for the file PULUMI_ENV. Executors make it
// the job's file where the root directory belongs to the job. On an agent's host, all jobs share the
// root directory.
type fixedPath struct {
	path  string
	file  string // the job's file
	use   *regexp.Regexp
	state fileState // of path before the current step
}

// fileState identifies the content of a file.
type fileState struct {
	size     int64
	modified time.Time
}

func newFixedPath(path, file string) *fixedPath {
	// The path counts only as a whole word: $PWD/PULUMI_ENV is another file.
	use := regexp.MustCompile(`(^|[\s=<>|&;(,:])["']?/+` + regexp.QuoteMeta(strings.TrimPrefix(path, "/")) + `($|[\s"'<>|&;),:])`)
	f := &fixedPath{path: path, file: file, use: use}
	f.state = f.current()
	return f
}

// isJobs reports whether the path is the job's file.
func (f *fixedPath) isJobs() bool {
	if target, err := os.Readlink(f.path); err == nil && target == f.file {
		return true // even if a step has removed the file
	}
	own, err := os.Stat(f.file)
	if err != nil {
		return false
	}
	at, err := os.Stat(f.path)
	return err == nil && os.SameFile(own, at)
}

func (f *fixedPath) current() fileState {
	info, err := os.Lstat(f.path)
	if err != nil {
		return fileState{}
	}
	return fileState{info.Size(), info.ModTime()}
}

// CheckCommand returns an error if a command would use the path [protocol.FilePulumiEnv] where it
// is not the job's file. The variables would be lost and remain readable on the agent's host.
func (e *Environment) CheckCommand(command string) error {
	e.fixed.state = e.fixed.current()
	for line := range strings.Lines(command) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") || !e.fixed.use.MatchString(line) {
			continue
		}
		if e.fixed.isJobs() {
			return nil
		}
		return fmt.Errorf("the command was not run because it uses the path %s, which is not this job's file here: write \"$PULUMI_ENV\" instead, which names the job's file everywhere", e.fixed.path)
	}
	return nil
}

// StepEnded returns a line for the log if the path [protocol.FilePulumiEnv] has appeared or
// changed since the last call of [Environment.CheckCommand], or "".
func (e *Environment) StepEnded() string {
	f := e.fixed
	if now := f.current(); now == (fileState{}) || now == f.state || f.isJobs() {
		return ""
	}
	return fmt.Sprintf("warning: during this step the file %s was written, which is not this job's file: "+
		"later steps do not get its variables; write to \"$PULUMI_ENV\" instead, and remove %s, which can contain secrets", f.path, f.path)
}

// pulumiEnvFile returns the path of the job's file PULUMI_ENV. In a pod it is next to the job's
// directory, because it must exist before the job's container does, which mounts it as path.
func pulumiEnvFile(jobDir, path string) string {
	mounted := filepath.Join(filepath.Dir(jobDir), filePulumiEnv)
	inVolume, err := os.Lstat(mounted)
	if err == nil && inVolume.Mode().IsRegular() {
		if at, err := os.Lstat(path); err == nil && os.SameFile(inVolume, at) {
			return mounted
		}
	}
	return filepath.Join(jobDir, filePulumiEnv)
}

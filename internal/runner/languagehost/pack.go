package languagehost

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
)

// analyzer is the kind of plugin that a policy pack is.
const analyzer = "analyzer"

// Fields of a RunPluginResponse.
const (
	fieldStdout   = 1
	fieldStderr   = 2
	fieldExitCode = 3
)

// find returns the path of a pack's program for this machine: policy-OS-ARCH, or policy.
func find(dir string) (string, error) {
	specific := fmt.Sprintf("policy-%s-%s", runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{specific, "policy"} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", fmt.Errorf("finding the policy pack's program: %w", err)
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			return "", fmt.Errorf("the policy pack's program %s is not an executable file", name)
		}
		return path, nil
	}
	return "", fmt.Errorf("the policy pack has no program for this machine: it needs the file %s or policy", specific)
}

// run runs a pack's program until it exits or the CLI ends the call, and sends its output.
func run(c *call, r *runRequest) error {
	if r.kind != "" && r.kind != analyzer {
		return &failure{codeUnimplemented, fmt.Sprintf("runtime: %s is the runtime of policy packs, not of plugins of the kind %s", Runtime, r.kind)}
	}
	path, err := find(r.dir)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	stdout, stderr := &output{c: c, lock: &lock, field: fieldStdout}, &output{c: c, lock: &lock, field: fieldStderr}
	cmd := exec.CommandContext(c.r.Context(), path, r.args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.workDir, r.env, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = stopTime
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the policy pack's program: %w", err)
	}
	err = cmd.Wait()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0 {
		return fmt.Errorf("the policy pack's program was ended: %w", err)
	}
	return c.send(appendNumber(nil, fieldExitCode, cmd.ProcessState.ExitCode()))
}

// output sends what a pack writes to one of its outputs.
type output struct {
	c     *call
	lock  *sync.Mutex // held while a message is sent
	field protowire.Number
}

var _ io.Writer = (*output)(nil)

// Write implements [io.Writer].
func (o *output) Write(data []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if err := o.c.send(appendText(nil, o.field, data)); err != nil {
		return 0, err
	}
	return len(data), nil
}

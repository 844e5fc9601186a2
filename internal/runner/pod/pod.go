// Package pod implements what the runner's program does in a job's pod beside running the job: its
// init container copies the program and the job into the pod's volumes, and its sidecar prints the
// log that the runner could not send.
package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"workflowagent/internal/delivery/spooldump"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/sys/durable"
)

// programName is the name of the installed program.
const programName = "workflow-runner"

// maxLaunch bounds the size of a launch document. A Secret has at most 1 MiB.
const maxLaunch = 4 << 20

// Install copies the running program to the directory to, and the file launch to the file launchTo.
// The job's container can have another user, so both are readable for all users of their volumes;
// only the job's container has the volume with launchTo, and the runner removes the file first.
// Install can be repeated, because a cluster repeats an init container that failed.
func Install(to, launch, launchTo string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the runner: %w", err)
	}
	if err := copyProgram(self, filepath.Join(to, programName)); err != nil {
		return fmt.Errorf("installing the runner: %w", err)
	}
	if err := makePulumiEnv(filepath.Join(to, protocol.FileEnv)); err != nil {
		return fmt.Errorf("creating the file for PULUMI_ENV: %w", err)
	}
	data, err := boundedfile.Read(launch, maxLaunch)
	if err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	if err := durable.WriteFile(launchTo, data, 0o444); err != nil {
		return fmt.Errorf("writing the job for its container: %w", err)
	}
	return nil
}

// makePulumiEnv creates the file that the job's container mounts as [protocol.FilePulumiEnv]. The
// container can have another user, and only it and the log's sidecar have the volume.
func makePulumiEnv(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o666), f.Close())
}

// copyProgram replaces the file to with a copy of an executable.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := to + ".new"
	out, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, to)
}

// Keep waits for SIGTERM or SIGINT, which a pod's sidecar receives after the job's container has
// exited. Then it writes the job's log spool to out, or an empty one if the server already has log and
// result, and waits until its output was read.
func Keep(ctx context.Context, jobDir string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if _, err := fmt.Fprintln(out, "Waiting for the end of the job."); err != nil {
		return err
	}
	debug.FreeOSMemory() // nothing is needed before the signal
	<-ctx.Done()
	if reported(jobDir) {
		if _, err := fmt.Fprintln(out, "The server has the job's log and result."); err != nil {
			return err
		}
		return spooldump.WriteNone(out)
	}
	if err := spooldump.Write(out, filepath.Join(jobDir, protocol.DirSpool)); err != nil {
		return err
	}
	Settle(out, settleTime)
	<-time.After(settlePause)
	return nil
}

// reported reports whether the runner has recorded that the server has log and result.
func reported(jobDir string) bool {
	if info, err := os.Lstat(jobDir); err != nil || !info.IsDir() {
		return false // the opening of a pipe would never end
	}
	root, err := os.OpenRoot(jobDir)
	if err != nil {
		return false
	}
	defer root.Close()
	f, _, err := boundedfile.OpenIn(root, protocol.FileResult, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	var result protocol.Result
	err = json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&result)
	return err == nil && result.Reported
}

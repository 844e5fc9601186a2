// Command testrunner runs the package program as a runner binary:
//
//	testrunner run --job-dir DIR [--launch-file FILE --holder-env NAME]
//	testrunner install --to DIR --launch FILE --launch-to FILE
//	testrunner keep --job-dir DIR
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/runner/pod"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "child" {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("child ready")
		for {
			time.Sleep(time.Hour)
		}
	}
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	flags := flag.NewFlagSet("testrunner "+command, flag.ExitOnError)
	jobDir := flags.String("job-dir", "", "the job's directory")
	launchFile := flags.String("launch-file", "", "read the launch document from this file instead of standard input")
	flags.String("holder-env", "", "accepted for the runner's command line")
	to := flags.String("to", "", "directory for the runner")
	launch := flags.String("launch", "", "launch document to copy")
	launchTo := flags.String("launch-to", "", "file for the launch document")
	_ = flags.Parse(os.Args[min(2, len(os.Args)):]) // exits after an error
	var err error
	switch command {
	case "run":
		os.Exit(run(*jobDir, *launchFile))
	case "install":
		err = install(*to, *launch, *launchTo)
	case "keep":
		err = pod.Keep(context.Background(), *jobDir, os.Stdout)
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test runner:", err)
		os.Exit(1)
	}
}

// install copies this program and the launch document to where the main container finds them.
func install(to, launch, launchTo string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	document, err := os.ReadFile(launch)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(to, "workflow-runner"), program, 0o755)
	return errors.Join(err, os.WriteFile(launchTo, document, 0o666))
}

// resultFile is where a cluster reads a container's last message.
const resultFile = "/dev/termination-log"

func run(jobDir, launchFile string) int {
	var stdin io.Reader = os.Stdin
	stopping := []os.Signal{os.Interrupt}
	if launchFile != "" {
		document, err := os.ReadFile(launchFile)
		if err != nil || os.Remove(launchFile) != nil {
			return program.ExitNoLaunch
		}
		stdin = bytes.NewReader(document)
		stopping = append(stopping, syscall.SIGTERM) // the pod is being deleted
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, stopping...)
	interrupts := make(chan struct{})
	go func() { // stays open until the program exits
		for range signals {
			interrupts <- struct{}{}
		}
	}()
	if launchFile != "" {
		defer pod.Settle(os.Stdout, time.Second)
	}
	return program.Run(program.Host{
		Stdin:      stdin,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		Interrupts: interrupts,
		WriteFile: func(name string, data []byte) error {
			path := filepath.Join(jobDir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			err := os.WriteFile(path, data, 0o600)
			if name == "result.json" && launchFile != "" {
				err = errors.Join(err, os.WriteFile(resultFile, data, 0o600))
			}
			return err
		},
		Environ:    os.Environ,
		StartChild: startChild,
	})
}

// startChild starts this program again as a child in its own session, and returns once the child
// ignores interrupts.
func startChild() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "child")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

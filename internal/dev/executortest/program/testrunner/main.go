// Command testrunner runs the package program as a runner binary:
//
//	testrunner run --job-dir DIR
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"workflowagent/internal/dev/executortest/program"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "child" {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("child ready")
		for {
			time.Sleep(time.Hour)
		}
	}
	if len(os.Args) != 4 || os.Args[1] != "run" || os.Args[2] != "--job-dir" {
		fmt.Fprintln(os.Stderr, "usage: testrunner run --job-dir DIR")
		os.Exit(2)
	}
	os.Exit(run(os.Args[3]))
}

func run(jobDir string) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt)
	interrupts := make(chan struct{})
	go func() { // stays open until the program exits
		for range signals {
			interrupts <- struct{}{}
		}
	}()
	return program.Run(program.Host{
		Stdin:      os.Stdin,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		Interrupts: interrupts,
		WriteFile: func(name string, data []byte) error {
			path := filepath.Join(jobDir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return os.WriteFile(path, data, 0o600)
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

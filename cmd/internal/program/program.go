// Package program contains what the command lines of agent, runner and server share.
package program

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Exit codes, for service managers and scripts. A program can have more of them.
const (
	ExitOK     = 0
	ExitFailed = 1 // a failure while running; a retry may help
	ExitUsage  = 2 // an invalid command line or configuration; a retry does not help
	ExitNone   = 3 // what the command is about does not exist: no agent runs, no server has a database, no user has a login
)

// ExitError is an error with its own exit code. If Err is nil, its message has already been printed.
type ExitError struct {
	Err  error
	Code int
}

// Exit returns an error with the exit code, or nil if the code is 0 and err is nil.
func Exit(code int, err error) error {
	if code == ExitOK {
		return err
	}
	return ExitError{err, code}
}

// Usage marks an error as one in the command line or the configuration.
func Usage(err error) error { return ExitError{err, ExitUsage} }

func (e ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e ExitError) Unwrap() error { return e.Err }

// Result returns the exit code for a command's error, and the line to print about it, or "".
func Result(err error) (code int, line string) {
	exit, coded := errors.AsType[ExitError](err)
	switch {
	case err == nil:
		return ExitOK, ""
	case !coded:
		return ExitFailed, "error: " + err.Error()
	case exit.Err == nil:
		return exit.Code, ""
	}
	return exit.Code, "error: " + err.Error()
}

// Version returns the version that the linker has set. For a build without one, it returns a version
// for developers, with the commit if it is known.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	const unknown = "v0.0.0-dev"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return unknown + "-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return unknown
}

// NewVersionCommand returns the command that prints the version.
func NewVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

// The runtime must not read the limit of processors from a file again and again.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// The program workflow-esc evaluates environments for workflow-server: a definition is YAML with imports,
// interpolations, functions and secrets.
//
// It is a separate program and module because the language has one implementation, which belongs to Pulumi's
// SDK, and because definitions are untrusted: the program evaluates one of them in a sandbox, within limits of
// memory and time, and exits. Package wire describes the messages between the server and the program.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"workflowagent/cmd/workflow-esc/internal/evaluator"
	"workflowagent/cmd/workflow-esc/internal/sandbox"
	"workflowagent/internal/esc/wire"
)

// version is set by the linker.
var version = "v0.0.0"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("workflow-esc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, `workflow-esc evaluates environments for workflow-server, which starts it and talks to it over standard input and
output. It is of no use by itself.

Usage:
  workflow-esc             serve one request
  workflow-esc --version   print the version
`)
	}
	printVersion := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	switch {
	case *printVersion:
		fmt.Fprintln(stdout, "workflow-esc", version)
		return 0
	case flags.NArg() > 0:
		flags.Usage()
		return 2
	}
	program := evaluator.Program{
		Version: version,
		Limits:  sandbox.Limits{Memory: wire.Memory, CPU: wire.CPUSeconds * time.Second},
		In:      os.Stdin, Out: os.Stdout,
	}
	if err := program.Serve(); err != nil {
		fmt.Fprintln(stderr, "workflow-esc:", err)
		return 1
	}
	return 0
}

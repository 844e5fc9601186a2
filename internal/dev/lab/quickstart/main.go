// Command quickstart runs a real deployment on this machine from the checkout alone: it builds the
// product and a stock Pulumi CLI, starts a server and an agent, lets the CLI deploy
// examples/quickstart, and cleans up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	target := flag.String("target", targetAuto, "where the deployment runs: docker, process, or auto for docker where it works")
	keep := flag.Bool("keep", os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0", "keep everything running until ^C (also KEEP=1)")
	privateEngine := flag.Bool("private-engine", false, "start a Docker Engine only for the quickstart (requires root and Linux)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	q := &quickstart{ui: newUI(os.Stdout), target: *target, keep: *keep, privateEngine: *privateEngine}
	err := q.run(ctx)
	interrupted := errors.Is(context.Cause(ctx), context.Canceled)
	// A second ^C terminates the program at once.
	stop()
	if err != nil && !interrupted {
		q.explain(err)
	}
	q.cleanUp()
	switch {
	case interrupted && q.deployed:
	case interrupted:
		fmt.Fprintln(os.Stderr, "quickstart: interrupted")
		os.Exit(130)
	case err != nil:
		os.Exit(1)
	}
}

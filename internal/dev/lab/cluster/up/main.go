// Command up runs a test cluster until it is interrupted, and prints how tests and kubectl use it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/cluster"
)

func main() {
	build := flag.Bool("build", false, "only build Kubernetes into the lab's cache")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *build); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, build bool) error {
	program, err := lab.Kubernetes(ctx, os.Stderr)
	if err != nil || build {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	fmt.Printf(`The cluster runs until this command is interrupted.

export %s=%s
export KUBECONFIG=%s
%s kubectl get pods --all-namespaces
`, cluster.Variable, c.Dir, c.Admin(), program)
	<-ctx.Done()
	return c.Close()
}

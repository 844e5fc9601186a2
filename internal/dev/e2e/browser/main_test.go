// Package browser drives the console in a real browser, against a real server, agents and the stock
// pulumi CLI.
package browser

import (
	"context"
	"fmt"
	"os"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/lab/chromium"
)

// browser is the browser of all tests, each of which uses its own profile in it.
var browser context.Context

func TestMain(m *testing.M) {
	if evaluator.Serve() {
		return
	}
	var err error
	var stop func()
	if browser, stop, err = chromium.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer stop()
	harness.Main(m)
}

package lab

import (
	"context"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
)

// Process is a [child.Process].
type Process = child.Process

// StartProcess is [child.Start].
func StartProcess(ctx context.Context, binary string, args, env []string, logFile string) (*Process, error) {
	return child.Start(ctx, binary, args, env, logFile)
}

// Tail is [child.Tail].
func Tail(path string, n int) string { return child.Tail(path, n) }

// FreePort is [child.FreePort].
func FreePort(host string) (int, error) { return child.FreePort(host) }

// PostgresAvailable is [postgres.Available].
func PostgresAvailable() (reason string, ok bool) { return postgres.Available() }

// StartPostgres is [postgres.Start].
func StartPostgres(ctx context.Context, dir string, settings ...string) (dsn string, stop func(), err error) {
	return postgres.Start(ctx, dir, settings...)
}

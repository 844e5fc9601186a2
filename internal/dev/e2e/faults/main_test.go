// Package faults kills processes, cuts connections and plants hostile jobs under running
// deployments, and checks the results.
package faults

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

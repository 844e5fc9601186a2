// Package cluster runs deployments in pods of a real Kubernetes.
package cluster

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

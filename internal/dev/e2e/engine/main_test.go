// Package engine runs deployments in containers of a real Docker Engine.
package engine

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

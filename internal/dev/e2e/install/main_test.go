package install

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

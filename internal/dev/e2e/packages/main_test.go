// Package packages checks the contents, signatures and reproducibility of a release.
package packages

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Package packages checks the contents and signatures of a release, and that it can be
// reproduced.
package packages

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

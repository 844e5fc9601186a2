// Package clients drives a server and agents with the stock pulumi CLI and with the requests of
// stock agents. TestScripts describes the commands of the scripts in testdata.
package clients

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Package forge deploys from repositories of a real Gitea with a real server, agent, runner and the
// stock pulumi CLI. It runs only if the variable WORKFLOW_GITEA is set.
package forge

import (
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

package gitea

import (
	"testing"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
)

var words = forgetest.Words{
	vcs.ReportPending: "pending", vcs.ReportRunning: "pending", vcs.ReportAction: "pending",
	vcs.ReportSucceeded: "success", vcs.ReportNeutral: "success", vcs.ReportFailed: "failure",
}

func TestClient(t *testing.T) {
	forgetest.Run(t, Forge{}, words, forgetest.Gitea)
}

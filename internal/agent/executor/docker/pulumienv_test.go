package docker

import (
	"testing"

	"github.com/moby/moby/client"

	"workflowagent/internal/protocol"
)

// TestPathOfTheDocumentationIsTheJobsFile covers an image whose user may not write to the root
// directory.
func TestPathOfTheDocumentationIsTheJobsFile(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir})
	defer e.Close()
	h, err := prepare(t, e, spec(testUserImage))
	if err != nil {
		t.Fatal(err)
	}
	found, err := labClient(t).ContainerStatPath(t.Context(), jobOf(t, h).Name, client.ContainerStatPathOptions{Path: protocol.FilePulumiEnv})
	if err != nil || found.Stat.LinkTarget != defaultJobDir+"/"+protocol.FileEnv {
		t.Errorf("%s: %+v, %v", protocol.FilePulumiEnv, found, err)
	}
}

package pulumi

import (
	"context"
	"fmt"
	"os"

	"workflowagent/internal/workflow"
)

// envSkipCheckpoints makes pulumi prepare no checkpoints.
const envSkipCheckpoints = "PULUMI_SKIP_CHECKPOINTS"

// firstSkipping is the first version of pulumi that prepares checkpoints even if it sends a journal.
var firstSkipping = workflow.Version{3, 274}

// SkipCheckpoints makes the pulumi that this process becomes prepare no checkpoints, if it would discard
// them because it sends a journal to backendURL. Without a journal, an update that is killed would leave
// no state, so pulumi must be new, and neither the job nor the agent may have chosen otherwise. dir is
// the program's directory, on which the version can depend.
func SkipCheckpoints(backendURL, dir string) error {
	if os.Getenv(envSkipCheckpoints) != "" || os.Getenv("PULUMI_DISABLE_JOURNALING") != "" || os.Getenv("PULUMI_BACKEND_URL") != backendURL {
		return nil
	}
	path, err := Find()
	if err != nil {
		return err
	}
	version, err := Version(context.Background(), path, dir, os.Environ())
	if err != nil || version.Compare(firstSkipping) < 0 || version[0] != firstSkipping[0] {
		return nil //nolint:nilerr // checkpoints only cost time
	}
	if err := os.Setenv(envSkipCheckpoints, "true"); err != nil {
		return fmt.Errorf("setting %s: %w", envSkipCheckpoints, err)
	}
	return nil
}

package jobs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

// runnerNames returns the possible file names of the runner binary. The request names no platform,
// which means linux/amd64.
func runnerNames() []string {
	names := []string{"workflow-runner-embeddable-linux-amd64", "workflow-runner-embeddable"}
	if runtime.GOOS == "linux" {
		names = append(names, "workflow-runner")
	}
	return names
}

// executor sends the Linux runner, compressed with gzip, to agents that have no runner.
func (a *agentRoutes) executor(w http.ResponseWriter, r *http.Request) error {
	for _, name := range runnerNames() {
		file, err := os.Open(filepath.Join(a.runnerDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("opening the runner binary: %w", err)
		}
		defer file.Close()
		w.Header().Set("Content-Type", "application/gzip")
		z := gzip.NewWriter(w)
		if _, err = io.Copy(z, file); err == nil {
			err = z.Close()
		}
		if err != nil {
			web.Abort(r, fmt.Errorf("sending the runner binary: %w", err))
		}
		return nil
	}
	return fault.NotFound("this server has no runner binary next to it; put workflow-runner-embeddable into its directory, or use an agent that includes its own")
}

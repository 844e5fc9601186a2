package server

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

	"workflowagent/internal/server/api/jobs"
)

// runnerFile is the runner binary that may lie beside the server.
type runnerFile struct{ dir string }

// embeddedRunner looks for the runner beside the server's own binary.
func embeddedRunner() jobs.RunnerBinary {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return runnerFile{}
	}
	return runnerFile{filepath.Dir(exe)}
}

// names lists what the binary may be called. The call knows no platform and
// means linux on amd64.
func (f runnerFile) names() []string {
	names := []string{"workflow-runner-embeddable-linux-amd64", "workflow-runner-embeddable"}
	if runtime.GOOS == "linux" {
		names = append(names, "workflow-runner")
	}
	return names
}

// ServeRunner implements [jobs.RunnerBinary].
func (f runnerFile) ServeRunner(w http.ResponseWriter, _ *http.Request) (bool, error) {
	if f.dir == "" {
		return false, nil
	}
	for _, name := range f.names() {
		file, err := os.Open(filepath.Join(f.dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("opening the runner binary: %w", err)
		}
		defer file.Close()
		w.Header().Set("Content-Type", "application/gzip")
		z := gzip.NewWriter(w)
		if _, err := io.Copy(z, file); err != nil {
			return true, fmt.Errorf("sending the runner binary: %w", err)
		}
		if err := z.Close(); err != nil {
			return true, fmt.Errorf("sending the runner binary: %w", err)
		}
		return true, nil
	}
	return false, nil
}

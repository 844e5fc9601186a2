package system

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

type releaseRoutes struct {
	dir       string
	downloads downloads
}

// newReleases returns routes that serve the files below a directory at /releases/ without
// authentication, for agents that update themselves and for install scripts. The files are signed,
// so clients need not trust the server.
func newReleases(dir string) *releaseRoutes {
	return &releaseRoutes{dir: dir, downloads: downloads{active: map[*download]bool{}}}
}

func (s *releaseRoutes) register(rt *web.Router) {
	rt.Public(http.MethodGet, "/releases/*", s.file)
	rt.Public(http.MethodHead, "/releases/*", s.file)
}

// file responds with a file, or with the requested ranges of the file. It does not list
// directories, and it hides names that begin with a dot.
func (s *releaseRoutes) file(w http.ResponseWriter, r *http.Request) error {
	name := web.Param(r, "*")
	missing := fault.NotFound("the releases contain no such file")
	if !fs.ValidPath(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
		return missing
	}
	d := s.downloads.enter(w, r)
	if d == nil {
		return &web.Error{Status: http.StatusServiceUnavailable, RetryAfter: 30 * time.Second, Message: "too many concurrent downloads; retry later"}
	}
	defer s.downloads.leave(d)
	// The directory is opened for each request, so that the operator can replace it.
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return fmt.Errorf("opening the directory of releases: %w", err)
	}
	defer root.Close()
	// O_NONBLOCK prevents a named pipe from blocking the request.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return missing
	case err != nil:
		return fmt.Errorf("opening a release file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading a release file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return missing
	}
	kind := "application/octet-stream"
	switch path.Ext(name) {
	case ".txt", ".sh", ".pem", ".asc":
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache") // clients must revalidate each time
	http.ServeContent(d, r, "", info.ModTime(), file)
	return nil
}

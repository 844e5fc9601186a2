package lab

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/lab/child"
)

// GitServer serves bare repositories over HTTP, read-only, through git's own HTTP back end. It
// supports shallow fetches, and fetches of any commit by its hash.
type GitServer struct {
	// URL is the base of the repositories' URLs, without a trailing slash.
	URL string

	dir    string
	sha256 bool
	server *http.Server
	served chan error
}

// GitOptions configures a [GitServer]. The zero value serves on a free loopback port without
// authentication.
type GitOptions struct {
	// Listen is the TCP address to listen on, or "127.0.0.1:0" if empty. To serve containers, use
	// the address of a Docker bridge.
	Listen string
	// Password, if not empty, is the password that every request must send by basic authentication.
	// Hosted services accept a token as the password.
	Password string
	// Username, if not empty, is the user name that requests must send with the password.
	Username string
	// SHA256 makes the hashes of new repositories SHA-256.
	SHA256 bool
}

// StartGitServer serves the repositories under dir. The caller must close the server.
func StartGitServer(ctx context.Context, dir string, options GitOptions) (*GitServer, error) {
	backend, err := gitBackend(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("starting a git server: %w", err)
	}
	if options.Listen == "" {
		options.Listen = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", options.Listen)
	if err != nil {
		return nil, fmt.Errorf("starting a git server: %w", err)
	}
	var handler http.Handler = &cgi.Handler{
		Path: backend,
		Root: "/",
		Dir:  dir,
		Env:  append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
	}
	if options.Password != "" {
		handler = requirePassword(options, handler)
	}
	s := &GitServer{
		URL:    "http://" + listener.Addr().String(),
		dir:    dir,
		sha256: options.SHA256,
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		served: make(chan error, 1),
	}
	go func() { s.served <- s.server.Serve(listener) }()
	return s, nil
}

// Close stops the server after a short grace period for requests in progress.
func (s *GitServer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close()
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// NewRepo creates a repository with one commit on its branch main.
func (s *GitServer) NewRepo(ctx context.Context, name string, files map[string]string) (repo *Repo, commit string, err error) {
	repo = &Repo{URL: s.URL + "/" + name + ".git", dir: filepath.Join(s.dir, name+".git")}
	if err := repo.init(ctx, s.sha256); err != nil {
		return nil, "", err
	}
	commit, err = repo.Commit(ctx, MainBranch, "Begin", files)
	if err != nil {
		return nil, "", err
	}
	return repo, commit, nil
}

func requirePassword(options GitOptions, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		username, password, _ := r.BasicAuth()
		right := subtle.ConstantTimeCompare([]byte(password), []byte(options.Password))
		if options.Username != "" {
			right &= subtle.ConstantTimeCompare([]byte(username), []byte(options.Username))
		}
		if right != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "authentication required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func gitBackend(ctx context.Context) (string, error) {
	out, err := child.Command(ctx, "git", "--exec-path").Output()
	if err != nil {
		return "", fmt.Errorf("finding git's programs (is git installed?): %w", err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		return "", fmt.Errorf("finding git's HTTP back end: %w", err)
	}
	return backend, nil
}

// gitEnv returns an environment in which git reads neither the user's nor the system's
// configuration.
func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"LANG=C.UTF-8",
	}
}

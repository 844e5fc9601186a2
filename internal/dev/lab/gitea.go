package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
)

// GiteaVersion is the version of Gitea in the nested module internal/dev/tools/gitea.
const GiteaVersion = "v1.26.0"

const (
	giteaBinary = "gitea"
	giteaModule = "code.gitea.io/gitea"
	giteaStart  = 2 * time.Minute
)

// Gitea is a private Gitea on a loopback port.
type Gitea struct {
	// URL is the base of its pages, without a trailing slash.
	URL string

	binary, config string
	process        *child.Process
}

// GiteaAvailable reports whether [StartGitea] should work on this machine, and if not, why.
func GiteaAvailable() (reason string, ok bool) {
	for _, name := range []string{"gcc", "git"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed", false
		}
	}
	return "", true
}

// StartGitea starts Gitea with its files in dir. The first start on a machine builds it, which takes
// minutes and is reported on progress. The caller must close it.
func StartGitea(ctx context.Context, dir string, progress io.Writer) (*Gitea, error) {
	g, err := startGitea(ctx, dir, progress)
	if err != nil {
		return nil, fmt.Errorf("starting Gitea: %w", err)
	}
	return g, nil
}

func startGitea(ctx context.Context, dir string, progress io.Writer) (*Gitea, error) {
	if reason, ok := GiteaAvailable(); !ok {
		return nil, errors.New(reason)
	}
	bin, err := buildModule(ctx, progress, giteaBinary, []program{{
		name: giteaBinary, pkg: giteaModule, ldflags: "-X main.Version=" + strings.TrimPrefix(GiteaVersion, "v"),
		cgoTags: "sqlite sqlite_unlock_notify", what: "Gitea", expect: "about 8 min",
	}})
	if err != nil {
		return nil, err
	}
	source := child.Command(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", giteaModule)
	if source.Dir, err = toolDir("gitea"); err != nil {
		return nil, err
	}
	static, err := source.Output()
	if err != nil {
		return nil, fmt.Errorf("finding its module: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	port, err := child.FreePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	g := &Gitea{URL: "http://127.0.0.1:" + strconv.Itoa(port), binary: filepath.Join(bin, giteaBinary), config: filepath.Join(dir, "app.ini")}
	if err := g.configure(dir, port, strings.TrimSpace(string(static))); err != nil {
		return nil, err
	}
	if _, err := g.Admin(ctx, "migrate"); err != nil {
		return nil, err
	}
	logFile := filepath.Join(dir, "gitea.log")
	if g.process, err = child.Start(context.WithoutCancel(ctx), g.binary, []string{"--config", g.config, "web"}, g.env(), logFile); err != nil {
		return nil, err
	}
	if err := g.wait(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, child.Tail(logFile, tailLines))
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Gitea) configure(dir string, port int, static string) error {
	account, err := user.Current()
	if err != nil {
		return err
	}
	config := strings.Join([]string{
		"RUN_USER = " + account.Username,
		"I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true",
		"WORK_PATH = " + dir,
		"[server]", "HTTP_ADDR = 127.0.0.1", "HTTP_PORT = " + strconv.Itoa(port), "ROOT_URL = " + g.URL + "/",
		"DISABLE_SSH = true", "OFFLINE_MODE = true", "LFS_START_SERVER = false", "STATIC_ROOT_PATH = " + static,
		"[database]", "DB_TYPE = sqlite3", "PATH = " + filepath.Join(dir, "gitea.db"),
		"[security]", "INSTALL_LOCK = true",
		"[webhook]", "ALLOWED_HOST_LIST = loopback",
		"[log]", "MODE = console", "LEVEL = warn",
		"[actions]", "ENABLED = false",
		"[packages]", "ENABLED = false",
		"[cron]", "ENABLED = false",
		"[queue]", "TYPE = channel",
		"[session]", "PROVIDER = memory",
		"",
	}, "\n")
	return os.WriteFile(g.config, []byte(config), 0o600)
}

func (g *Gitea) env() []string {
	return append(gitEnv()[:1], "HOME="+filepath.Dir(g.config), "LANG=C.UTF-8")
}

// Admin runs a command of Gitea's command line, and returns what it prints.
func (g *Gitea) Admin(ctx context.Context, args ...string) (string, error) {
	cmd := child.Command(ctx, g.binary, append([]string{"--config", g.config}, args...)...)
	cmd.Env = g.env()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("gitea %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// NewUser creates a user with an access token.
func (g *Gitea) NewUser(ctx context.Context, name string, admin bool, scopes string) (token string, err error) {
	args := []string{"admin", "user", "create", "--username", name, "--password", "Lab-password-1", "--email", name + "@example.invalid", "--must-change-password=false"}
	if admin {
		args = append(args, "--admin")
	}
	if _, err := g.Admin(ctx, args...); err != nil {
		return "", err
	}
	return g.NewToken(ctx, name, scopes)
}

// NewToken creates an access token of a user.
func (g *Gitea) NewToken(ctx context.Context, name, scopes string) (token string, err error) {
	out, err := g.Admin(ctx, "admin", "user", "generate-access-token", "--username", name, "--token-name", "lab-"+strconv.FormatInt(time.Now().UnixNano(), 36), "--scopes", scopes, "--raw")
	if err != nil {
		return "", err
	}
	// Log lines precede the token.
	lines := strings.Split(out, "\n")
	return strings.TrimSpace(lines[len(lines)-1]), nil
}

func (g *Gitea) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, giteaStart)
	defer cancel()
	return child.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		select {
		case <-g.process.Done():
			return false, fmt.Errorf("it exited at once: %w", g.process.Err())
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL+"/api/healthz", http.NoBody)
		if err != nil {
			return false, err
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return false, nil //nolint:nilerr // Gitea does not listen yet.
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
}

// Close stops Gitea.
func (g *Gitea) Close() error { return g.process.Stop(syscall.SIGTERM, child.Patience) }

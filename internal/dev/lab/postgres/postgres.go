// Package postgres starts PostgreSQL servers for tests and benchmarks.
package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/memdir"
)

const (
	startLimit = 3 * time.Minute
	superuser  = "lab"
	tailLines  = 15
)

// accounts are the OS accounts to try for running the server if this process is root,
// because PostgreSQL refuses to run as root.
var accounts = []string{"postgres", "nobody"}

// Available reports whether [Start] works on this machine, and if not, why.
func Available() (reason string, ok bool) {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := program(name); err != nil {
			return err.Error(), false
		}
	}
	if _, err := serverAccount(); err != nil {
		return err.Error(), false
	}
	return "", true
}

// Start creates a database cluster under dir and serves it on a loopback port until stop is
// called. stop also removes the cluster. dsn is the connection string of a superuser. The server
// does not sync its writes, unless one of the settings is "fsync=on".
//
// If this process is root, a temporary directory holds the data instead, because the server's OS
// account might have no access to dir.
func Start(ctx context.Context, dir string, settings ...string) (dsn string, stop func(), err error) {
	return begin(ctx, &server{dir: dir, password: rand.Text()}, settings)
}

// StartInMemory is like [Start], but the data is in memory if enough memory is free. Each database of a test has
// hundreds of files, whose creation and removal on a disk takes most of the processor time of a short test.
func StartInMemory(ctx context.Context, dir string, settings ...string) (dsn string, stop func(), err error) {
	// The write-ahead log, which otherwise grows up to 1 GB, takes memory, too.
	return begin(ctx, &server{dir: dir, password: rand.Text(), memory: memdir.Parent()}, append([]string{"max_wal_size=256MB"}, settings...))
}

func begin(ctx context.Context, p *server, settings []string) (dsn string, stop func(), err error) {
	if err := p.start(ctx, settings); err != nil {
		p.stop()
		return "", nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return p.dsn(), p.stop, nil
}

// Dump returns a database as a backup contains it.
func Dump(ctx context.Context, dsn string) ([]byte, error) {
	binary, err := program("pg_dump")
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	cmd := child.Command(ctx, binary, u.String())
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	text, err := cmd.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = errors.New(strings.TrimSpace(string(failed.Stderr)))
		}
		return nil, fmt.Errorf("dumping a database: %w", err)
	}
	return text, nil
}

type server struct {
	dir      string
	memory   string // directory in memory for the data, or ""
	data     string
	password string
	port     int
	account  *syscall.Credential // nil = the current account
	process  *child.Process
}

func (p *server) dsn() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, p.password),
		Host: "127.0.0.1:" + strconv.Itoa(p.port), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (p *server) start(ctx context.Context, settings []string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var err error
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if p.account, err = serverAccount(); err != nil {
		return err
	}
	parent := p.dir
	switch {
	case p.memory != "":
		parent = p.memory
	case p.account != nil:
		parent = os.TempDir()
	}
	if p.data, err = os.MkdirTemp(parent, "postgres-"); err != nil {
		return err
	}
	if err := p.initialize(ctx); err != nil {
		return err
	}
	if p.port, err = child.FreePort("127.0.0.1"); err != nil {
		return err
	}
	server, err := program("postgres")
	if err != nil {
		return err
	}
	args := []string{
		"-D", p.data, "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "max_connections=200",
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	logPath := filepath.Join(p.dir, "postgres.log")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), server, args...)
	p.prepare(cmd)
	if p.process, err = child.StartCommand(cmd, logPath); err != nil {
		return err
	}
	err = p.process.Await(ctx, 20*time.Millisecond, p.ready)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("postgres was not ready within %s:\n%s", startLimit, child.Tail(logPath, tailLines))
	}
	return err
}

func (p *server) initialize(ctx context.Context) error {
	initdb, err := program("initdb")
	if err != nil {
		return err
	}
	passwordFile := p.data + ".password"
	if err := os.WriteFile(passwordFile, []byte(p.password+"\n"), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(passwordFile) }()
	if p.account != nil {
		for _, path := range []string{passwordFile, p.data} {
			if err := os.Chown(path, int(p.account.Uid), int(p.account.Gid)); err != nil {
				return err
			}
		}
	}
	cmd := child.Command(ctx, initdb, "-D", p.data, "--username="+superuser, "--pwfile="+passwordFile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
	p.prepare(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("creating a database cluster: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (p *server) prepare(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = p.account
	cmd.Dir = p.data
	cmd.Env = []string{"PATH=" + child.Path(), "LANG=C", "TZ=UTC"}
}

// ready reads the server's status from the last line of its PID file.
func (p *server) ready() (bool, error) {
	content, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	const statusLine = 7
	lines := strings.Split(string(content), "\n")
	return len(lines) > statusLine && strings.TrimSpace(lines[statusLine]) == "ready", err
}

// stop stops the server without waiting for its clients, and removes its files.
func (p *server) stop() {
	if p.process != nil {
		_ = p.process.Stop(syscall.SIGINT, child.Patience)
	}
	if p.data != "" {
		_ = os.RemoveAll(p.data)
	}
}

// Programs returns the directory of the newest installed PostgreSQL's programs.
func Programs() (string, error) {
	path, err := program("initdb")
	if err != nil {
		return "", err
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), err
}

// program returns the path of a program of the newest installed PostgreSQL. Debian does not
// put server programs on the PATH.
func program(name string) (string, error) {
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(versions) > 0 {
		number := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
			return n
		}
		return slices.MaxFunc(versions, func(a, b string) int { return number(a) - number(b) }), nil
	}
	path, err := child.Find(name)
	if err != nil {
		return "", fmt.Errorf("%w (Debian's postgresql)", err)
	}
	return path, nil
}

// Own lets the server read files that its settings name.
func Own(paths ...string) error {
	account, err := serverAccount()
	if err != nil || account == nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, os.Chown(path, int(account.Uid), int(account.Gid)))
	}
	return errors.Join(errs...)
}

// serverAccount returns the server's OS account, or nil for the current one.
func serverAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range accounts {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("reading the account %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and none of the accounts %s exists", strings.Join(accounts, ", "))
}

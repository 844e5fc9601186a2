package lab

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
)

const (
	postgresStart = 3 * time.Minute
	postgresUser  = "lab"
)

// postgresAccounts are the OS accounts to try for running the server if this process is root,
// because PostgreSQL refuses to run as root.
var postgresAccounts = []string{"postgres", "nobody"}

// PostgresAvailable reports whether [StartPostgres] works on this machine, and if not, why.
func PostgresAvailable() (reason string, ok bool) {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := postgresProgram(name); err != nil {
			return err.Error(), false
		}
	}
	if _, err := postgresAccount(); err != nil {
		return err.Error(), false
	}
	return "", true
}

// StartPostgres creates a database cluster under dir and serves it on a loopback port until stop is
// called. stop also removes the cluster. dsn is the connection string of a superuser. The server
// does not sync its writes, unless one of the settings is "fsync=on".
//
// If this process is root, a temporary directory holds the data instead, because the server's OS
// account might have no access to dir.
func StartPostgres(ctx context.Context, dir string, settings ...string) (dsn string, stop func(), err error) {
	p := &postgres{dir: dir, password: rand.Text()}
	if err := p.start(ctx, settings); err != nil {
		p.stop()
		return "", nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	return p.dsn(), p.stop, nil
}

type postgres struct {
	dir      string
	data     string
	password string
	port     int
	account  *syscall.Credential // nil = the current account
	process  *Process
}

func (p *postgres) dsn() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(postgresUser, p.password),
		Host: "127.0.0.1:" + strconv.Itoa(p.port), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (p *postgres) start(ctx context.Context, settings []string) error {
	ctx, cancel := context.WithTimeout(ctx, postgresStart)
	defer cancel()
	var err error
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if p.account, err = postgresAccount(); err != nil {
		return err
	}
	parent := p.dir
	if p.account != nil {
		parent = os.TempDir()
	}
	if p.data, err = os.MkdirTemp(parent, "postgres-"); err != nil {
		return err
	}
	if err := p.initialize(ctx); err != nil {
		return err
	}
	if p.port, err = FreePort("127.0.0.1"); err != nil {
		return err
	}
	server, err := postgresProgram("postgres")
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
	if p.process, err = start(cmd, logPath); err != nil {
		return err
	}
	err = Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-p.process.Done():
			return false, fmt.Errorf("postgres exited at once (%w):\n%s", p.process.Err(), Tail(logPath, tailLines))
		default:
			return p.ready()
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("postgres was not ready within %s:\n%s", postgresStart, Tail(logPath, tailLines))
	}
	return err
}

func (p *postgres) initialize(ctx context.Context) error {
	initdb, err := postgresProgram("initdb")
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
	cmd := command(ctx, initdb, "-D", p.data, "--username="+postgresUser, "--pwfile="+passwordFile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
	p.prepare(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("creating a database cluster: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (p *postgres) prepare(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = p.account
	cmd.Dir = p.data
	cmd.Env = []string{"PATH=" + programPath(), "LANG=C", "TZ=UTC"}
}

// ready reads the server's status from the last line of its PID file.
func (p *postgres) ready() (bool, error) {
	content, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	const statusLine = 7
	lines := strings.Split(string(content), "\n")
	return len(lines) > statusLine && strings.TrimSpace(lines[statusLine]) == "ready", err
}

// stop stops the server without waiting for its clients, and removes its files.
func (p *postgres) stop() {
	if p.process != nil {
		_ = p.process.Stop(syscall.SIGINT, stopPatience)
	}
	if p.data != "" {
		_ = os.RemoveAll(p.data)
	}
}

// postgresProgram returns the path of a program of the newest installed PostgreSQL. Debian does not
// put server programs on the PATH.
func postgresProgram(name string) (string, error) {
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(versions) > 0 {
		number := func(path string) int {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
			return n
		}
		return slices.MaxFunc(versions, func(a, b string) int { return number(a) - number(b) }), nil
	}
	path, err := findProgram(name)
	if err != nil {
		return "", fmt.Errorf("%w (Debian's postgresql)", err)
	}
	return path, nil
}

// postgresAccount returns the server's OS account, or nil for the current one.
func postgresAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range postgresAccounts {
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
	return nil, fmt.Errorf("PostgreSQL does not run as root, and none of the accounts %s exists", strings.Join(postgresAccounts, ", "))
}

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/links"
	"workflowagent/internal/settings"
	"workflowagent/internal/sys/filelock"
)

const (
	lockSuffix = ".lock"
	// lockTime is more than the time for which a command holds the lock to see whether a server does.
	lockTime = time.Second
)

// usualDataDir is the data directory of a package's service.
const usualDataDir = "/var/lib/workflow-server"

// openDataDir creates the data directory. It names a new one, and existing ones that the operator can have
// meant.
func (s *Server) openDataDir() error {
	dir := s.cfg.DataDir
	if !used(dir) {
		log := s.log.WithField("data_dir", dir)
		log.Info("the data directory is new")
		for _, other := range otherDataDirs(dir) {
			log.Warnf("another installation exists in %[1]s; to use it, stop this server, and start it with --data-dir %[1]s", other)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the data directory: %w", err)
	}
	return nil
}

// otherDataDirs returns the usual data directories that a server has used, except dir.
func otherDataDirs(dir string) []string {
	candidates := []string{usualDataDir}
	if cwd, err := os.Getwd(); err == nil {
		candidates = append(candidates, filepath.Join(cwd, config.DefaultDataDir))
	}
	return slices.DeleteFunc(candidates, func(other string) bool { return other == dir || !used(other) })
}

// used reports whether a server has used a data directory. A directory that this process may not enter
// counts as used.
func used(dir string) bool {
	return slices.ContainsFunc([]string{"master-key", "server.db"}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil || errors.Is(err, fs.ErrPermission)
	})
}

// lockDatabase ensures that only one server uses a SQLite database, because each server keeps
// leases in memory that others cannot read. Servers on PostgreSQL share a database by design.
func lockDatabase(ctx context.Context, cfg config.Config) (*filelock.Lock, error) {
	path, ok := strings.CutPrefix(cfg.DSN(), "sqlite:")
	if !ok {
		return nil, nil //nolint:nilnil // nothing to lock
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of the database: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := filelock.Wait(ctx, path+lockSuffix)
	if held, ok := errors.AsType[*filelock.HeldError](err); ok {
		return nil, fmt.Errorf("another workflow-server is using the database %s (%w); stop it, or start this one with another --data-dir", path, held)
	}
	return lock, fault.While(err, "locking the database")
}

// urlOf returns a listener's URL for clients on this machine.
func urlOf(addr net.Addr, secure bool) (string, error) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return "", errors.New("the server listens on a unix socket; set --external-url to the URL that clients use")
	}
	if tcp.IP.IsUnspecified() {
		return "", errors.New("the server listens on all addresses; set --external-url to the URL that clients use")
	}
	if secure {
		return "https://" + addr.String(), nil
	}
	return "http://" + addr.String(), nil
}

// bootstrap sets up an empty installation and writes the first access token to a file that only the
// operator can read. It does not print the token, because logs have other readers.
func (s *Server) bootstrap(ctx context.Context, notices io.Writer) error {
	path := filepath.Join(s.cfg.DataDir, "admin-token")
	var token string
	err := s.identity.Bootstrap(ctx, s.cfg.Organization, func(text string) error {
		token = text
		return writeToken(path, text)
	})
	if errors.Is(err, identity.ErrNothingToDo) {
		if token != "" {
			// Another server on the same database has created the organization first.
			return os.Remove(path)
		}
		return nil
	}
	if err != nil {
		return err
	}
	s.log.WithField("organization", s.cfg.Organization).Info("created the first organization and its administrator")
	hint := ""
	if !s.cfg.Console().Derived(s.cfg.ExternalURL) {
		hint = "\nSo that the pulumi CLI opens and links to the console: export PULUMI_CONSOLE_DOMAIN=" + s.cfg.Console().Domain()
	}
	_, err = fmt.Fprintf(notices, `
Created organization %q and its administrator %q.
The access token is in %s, which only you can read.

Log in with:  PULUMI_ACCESS_TOKEN=$(cat %s) pulumi login %s
Console:      %s%s

`, s.cfg.Organization, identity.AdminLogin, path, path, s.cfg.ExternalURL, s.cfg.Console(), hint)
	return err
}

// offerLink prints a link that signs the first administrator in to the console, which shows the next
// steps. It does so until an administrator has signed in: later, readers of the log must not be able to
// act as the administrator.
func (s *Server) offerLink(ctx context.Context, sessions *signin.Service, notices io.Writer) error {
	key, err := sessions.FirstLink(audit.By(ctx, audit.WayServer, audit.Actor{}))
	if err != nil || key == "" {
		return err
	}
	_, err = fmt.Fprintf(notices, `Sign in to the console with this link, which is valid for 10 minutes and works once:
  %s%s
For another link, run:  workflow-server admin sign-in %s%s

`, s.cfg.Console(), links.SignInPath(key), identity.AdminLogin, s.selection())
	return err
}

// selection returns the flags with which commands find this server.
func (s *Server) selection() string {
	switch file := s.cfg.File(); {
	case s.cfg.Source("data_dir").Kind != settings.FromFile:
		return " --data-dir " + s.cfg.DataDir
	case file != filepath.Join(config.Etc, config.FileName):
		return " --config " + file
	}
	return ""
}

// writeToken writes a new file. An existing file is from a deleted database or an incomplete start.
func writeToken(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing an old admin token: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the admin token: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	return fault.While(errors.Join(err, f.Sync(), f.Close()), "writing the admin token")
}

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
	"strings"

	"workflowagent/internal/filelock"
	"workflowagent/internal/server/identity"
)

// makeDataDir makes the data directory, readable by its owner only.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	return nil
}

// lockDatabase makes sure that one server at a time uses a SQLite database:
// the leases it keeps in memory would be blind to those of another. Servers on
// PostgreSQL share on purpose.
func lockDatabase(cfg Config) (*filelock.Lock, error) {
	path, ok := strings.CutPrefix(cfg.database(), "sqlite:")
	if !ok {
		return nil, nil //nolint:nilnil // nothing to lock
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the database: %w", err)
	}
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the database: %w", err)
	}
	lock, err := filelock.Try(f)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return nil, fmt.Errorf("another workflow-server is using the database %s (%w); stop it, or start this one with another --data-dir", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the database: %w", err)
	}
	return lock, nil
}

// urlOf returns the address of a listener as clients on this machine write it.
func urlOf(addr net.Addr) (string, error) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() {
		return "", errors.New("the server listens on all addresses; set --external-url to the URL that clients use")
	}
	return "http://" + addr.String(), nil
}

// bootstrap sets up an empty installation and hands the first access token to
// the person who started the server, in a file that only they can read. It is not
// printed: what a service prints is kept in a log that others read.
func bootstrap(ctx context.Context, c *components, notices io.Writer) error {
	path := filepath.Join(c.cfg.DataDir, "admin-token")
	var token string
	err := c.identity.Bootstrap(ctx, c.cfg.Organization, func(text string) error {
		token = text
		return writeToken(path, text)
	})
	if errors.Is(err, identity.ErrNothingToDo) {
		if token != "" {
			// Another server on the same database was first.
			return os.Remove(path)
		}
		return nil
	}
	if err != nil {
		return err
	}
	c.log.WithField("organization", c.cfg.Organization).Info("created the first organization and its administrator")
	_, err = fmt.Fprintf(notices, `
Created organization %q and its administrator %q.
The access token is in %s, which only you can read.

Log in with:  PULUMI_ACCESS_TOKEN=$(cat %s) pulumi login %s

`, c.cfg.Organization, identity.AdminLogin, path, path, c.cfg.ExternalURL)
	return err
}

// writeToken writes a token into a new file. An existing file
// belongs to a deleted database, or to a start that did not finish.
func writeToken(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing an old admin token: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the admin token: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing the admin token: %w", err)
	}
	return nil
}

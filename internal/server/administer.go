package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	stdlog "log" //nolint:depguard // of net/http
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/api/control"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/sys/filelock"
	"workflowagent/internal/sys/pathowner"
)

// serviceRuntimeDir is the runtime directory of a service with the name of the program.
const serviceRuntimeDir = "/run/workflow-server"

// openControl creates the socket for commands. The server works without it.
func (s *Server) openControl(version string, memory *budget.Budget, services admin.Services) {
	log := s.logOf("control")
	dirs := []string{s.cfg.DataDir}
	if dir := s.cfg.RuntimeDir(); dir != "" {
		dirs = []string{dir, s.cfg.DataDir}
	}
	listener, err := control.Listen(dirs...)
	if err != nil {
		log.WithError(err).Warn("commands on this machine, such as \"workflow-server user list\", do not reach this server")
		return
	}
	s.commands = listener
	s.control = &http.Server{
		Handler: control.Handler(control.Server{
			About:  control.About{Version: version, PID: os.Getpid(), DataDir: s.cfg.DataDir, Database: s.cfg.Database.String()},
			Caller: admin.New(s.db, services), Pending: s.pending, Memory: memory, Log: log,
		}),
		ConnContext:       control.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(httpErrors{log}, "", 0),
	}
}

// Administer returns a caller of the operations of commands, and a function that closes it: the running server of a
// configuration or, if none runs, this process on its database, whose schema must be that of this program. onBehalf
// is the name of the user who became this process's user, such as with sudo, or "".
func Administer(ctx context.Context, cfg config.Config, version, onBehalf string, log *logrus.Entry) (admin.Caller, func() error, error) {
	wanted, dirs := sockets(cfg, os.Geteuid())
	wanted.Version, wanted.OnBehalf = version, onBehalf
	client, err := control.Find(ctx, wanted, dirs...)
	switch {
	case err == nil:
		return client, func() error { client.Close(); return nil }, nil
	case !errors.Is(err, control.ErrNotRunning):
		return nil, nil, err
	}
	return openDirectly(ctx, cfg, version, onBehalf, log)
}

// sockets returns which server a command is for, and the directories in which its socket can be.
func sockets(cfg config.Config, euid int) (wanted control.Wanted, dirs []string) {
	wanted = control.Wanted{DataDir: cfg.DataDir, Database: cfg.Database.String()}
	if dir := cfg.RuntimeDir(); dir != "" {
		dirs = append(dirs, dir)
	}
	owner, exists := ownerOf(cfg.DataDir)
	unnamed := cfg.Source("data_dir").IsDefault()
	switch {
	case unnamed && !exists:
		wanted.DataDir = "" // the service of this machine is meant
	case unnamed && euid == 0 && owner != 0:
		// The owner of the current directory can have created it as a trap for root.
	default:
		dirs = append(dirs, cfg.DataDir)
	}
	if euid == 0 || owner != euid { // a server of this user has no other directory
		dirs = append(dirs, serviceRuntimeDir)
	}
	return wanted, dirs
}

// ownerOf returns the id of the user who owns a directory. It returns -1 if that is unknown.
func ownerOf(dir string) (uid int, exists bool) {
	info, err := os.Stat(dir)
	if err != nil {
		return -1, !errors.Is(err, fs.ErrNotExist)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), true
	}
	return -1, true
}

// direct runs operations in this process.
type direct struct {
	service  *admin.Service
	uid      int
	onBehalf string
}

// Call implements [admin.Caller].
func (d direct) Call(ctx context.Context, operation string, request []byte) ([]byte, error) {
	return d.service.Call(admin.By(ctx, d.uid, d.onBehalf), operation, request)
}

func openDirectly(ctx context.Context, cfg config.Config, version, onBehalf string, log *logrus.Entry) (admin.Caller, func() error, error) {
	uid := os.Getuid()
	err := BecomeOwner(cfg)
	if _, unreachable := errors.AsType[*unreachableError](err); unreachable {
		return nil, nil, fmt.Errorf("no server runs, and %w: start the service, and repeat the command", err)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := checkStopped(cfg); err != nil {
		return nil, nil, err
	}
	db, err := OpenExistingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	var console links.Console
	if cfg.ExternalURL != "" || cfg.ConsoleURL != "" {
		console = cfg.Console()
	}
	ids, limit := identity.New(db, log), quota.New(db, log, cfg.Quota)
	service := admin.New(db, admin.Services{
		Identity: ids, Sessions: signin.New(db, signin.Options{Log: log, Identity: ids}), Pools: pools.New(db, log), Console: console,
		Organizations: organizations.New(db, log, limit, cfg.MaxDeployments),
		Backups:       newBackups(cfg, db, version, log),
		Grants:        grants.New(db),
		Environments:  environments.New(db, environments.Options{Log: log, Quota: limit}),
		Evaluations:   evaluations.New(db, evaluations.Options{Log: log}),
		Stacks:        stacks.New(db, stacks.Options{Log: log, Quota: limit, ExternalURL: cfg.ExternalURL, Console: console, KeepDeleted: cfg.KeepDeletedStacks}),
	})
	return direct{service, uid, onBehalf}, db.Close, nil
}

// checkStopped returns an error if a server runs on a SQLite database. It has found no socket of that server.
func checkStopped(cfg config.Config) error {
	path, pid, err := findHolder(cfg)
	if err == nil && pid != 0 {
		err = fmt.Errorf("a server (process %d) uses the database %s, but answers no commands: if it is older than this program, restart it; otherwise its log says why", pid, path)
	}
	return err
}

// findHolder returns the path of a SQLite database, and the process of the server that uses it, or 0.
func findHolder(cfg config.Config) (path string, pid int, err error) {
	path, ok := strings.CutPrefix(cfg.DSN(), "sqlite:")
	if !ok {
		return "", 0, nil // servers share the database
	}
	pid, held, err := filelock.Holder(path + lockSuffix)
	if errors.Is(err, fs.ErrPermission) {
		return path, 0, fmt.Errorf("only root and the server's own user have access to %s: run this command as one of them, such as with sudo", path)
	}
	if !held {
		pid = 0
	}
	return path, pid, err
}

// BecomeOwner gives this process the user of the server if root runs it. The files that it creates then belong to the
// server, the database knows it as the server, and what that user has put into the directory, such as a symbolic link,
// leads it nowhere that the server could not go. The error is [fs.ErrNotExist] if a SQLite database does not exist, and
// [fs.ErrPermission] if that user cannot reach it outside of the service.
func BecomeOwner(cfg config.Config) error {
	become, err := findOwner(cfg)
	if err != nil {
		return err
	}
	return become()
}

// findOwner returns a function that does what [BecomeOwner] does. Until it is called, this process still reads what
// only root can read.
func findOwner(cfg config.Config) (become func() error, err error) {
	if os.Geteuid() != 0 {
		return func() error { return nil }, nil
	}
	place, isFile := strings.CutPrefix(cfg.DSN(), "sqlite:")
	if !isFile {
		place = cfg.DataDir
	}
	return becomingOwnerOf(place, isFile, isNamed(cfg))
}

// isNamed reports whether the operator names the place of the data.
func isNamed(cfg config.Config) bool {
	return !cfg.Source("data_dir").IsDefault() || !cfg.Source("database").IsDefault()
}

// becomingOwnerOf is [findOwner] for the user who owns a file or a directory.
func becomingOwnerOf(place string, isFile, named bool) (become func() error, err error) {
	place, err = filepath.Abs(place)
	if err != nil {
		return nil, fmt.Errorf("finding the database: %w", err)
	}
	owner, err := pathowner.Of(place)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isFile:
		return nil, &NoDatabaseError{place} // its owner could create it at any time
	case errors.Is(err, fs.ErrNotExist) || err == nil && owner.UID == 0:
		return func() error { return nil }, nil
	case err != nil:
		return nil, fmt.Errorf("not opening the database as root: %w", err)
	case !named:
		return nil, fmt.Errorf("%s belongs to user %d: name the data directory of the server with --data-dir, or in its configuration file", place, owner.UID)
	}
	return func() error {
		if err := errors.Join(syscall.Setgroups([]int{owner.GID}), syscall.Setgid(owner.GID), syscall.Setuid(owner.UID)); err != nil {
			return fmt.Errorf("becoming the user of the server: %w", err)
		}
		if _, err := os.Stat(place); isFile && errors.Is(err, fs.ErrPermission) {
			return &unreachableError{place, owner.UID}
		}
		return nil
	}, nil
}

// unreachableError means that the user of the server cannot reach its database, such as that of a service of systemd
// with DynamicUser.
type unreachableError struct {
	path string
	uid  int
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("the server's user %d cannot reach %s outside of the service", e.uid, e.path)
}

// Is reports that the error is one of permissions.
func (e *unreachableError) Is(target error) bool { return target == fs.ErrPermission }

// OpenWithSecrets opens the database of a configuration and its key ring for a command, as the user of the server if
// root runs it. A server may be using the database at the same time. Before it becomes that user, it loads the master
// key, which only root may be able to read, and calls asRoot.
func OpenWithSecrets(ctx context.Context, cfg config.Config, log *logrus.Entry, asRoot func() error) (*store.DB, *keyring.Ring, error) {
	become, err := findOwner(cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := checkExists(cfg); err != nil {
		return nil, nil, err
	}
	source := cfg.MasterKey()
	var key []byte
	inDataDir := source.Create // where the server's user could have put a link
	if !inDataDir {
		key, err = source.Load(ctx)
	}
	if err == nil {
		err = asRoot()
	}
	if err == nil {
		err = become()
	}
	if err == nil && inDataDir {
		key, err = source.Load(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	db, err := OpenExistingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	ring, err := keyring.Open(ctx, db, key)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, ring, nil
}

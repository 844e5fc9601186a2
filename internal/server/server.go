// Package server runs the control plane as one process: it connects the domains, serves their API
// and runs their background work.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"workflowagent/internal/filelock"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/system"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/keyring"
	"workflowagent/internal/server/oidc"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// Server is a control plane that listens but does not serve yet.
type Server struct {
	cfg        Config
	log        *logrus.Entry
	listener   net.Listener
	lock       *filelock.Lock
	c          *components
	handler    http.Handler
	subsystems []Subsystem
}

type components struct {
	cfg      Config
	log      *logrus.Entry
	version  string
	db       *store.DB
	identity *identity.Service
	stacks   *stacks.Service
	metrics  *prometheus.Registry
	// draining is closed when the server begins to stop, which ends long polls.
	draining chan struct{}
}

// New opens the database, sets up an empty installation, and listens. It writes messages for the
// operator, such as the location of the first access token, to notices.
func New(ctx context.Context, cfg Config, version string, log *logrus.Entry, notices io.Writer) (_ *Server, err error) {
	s := &Server{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			s.closeAll()
		}
	}()
	if err := makeDataDir(cfg.DataDir); err != nil {
		return nil, err
	}
	if s.lock, err = lockDatabase(cfg); err != nil {
		return nil, err
	}
	if s.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", cfg.Listen, err)
	}
	if s.cfg.ExternalURL == "" {
		if s.cfg.ExternalURL, err = urlOf(s.listener.Addr()); err != nil {
			return nil, err
		}
	}
	if s.c, err = newComponents(ctx, s.cfg, version, log); err != nil {
		return nil, err
	}
	if err := bootstrap(ctx, s.c, notices); err != nil {
		return nil, err
	}
	poolService := pools.New(s.c.db, log.WithField("subsystem", "pools"))
	service := newDeployments(s.c, poolService)
	s.subsystems = append(ownSubsystems(s.c), Subsystem{Name: "deployments", Run: service.Run})
	s.handler = api.New(api.Deps{
		Log:         log.WithField("subsystem", "api"),
		Identity:    s.c.identity,
		Stacks:      s.c.stacks,
		Deployments: service,
		Pools:       poolService,
		OIDC:        oidc.New(s.c.db, new(outbound.Client), log.WithField("subsystem", "oidc")),
		RunnerDir:   programDir(),
		ExternalURL: s.cfg.ExternalURL,
		Limits:      request.Limits{Together: requestMemory()},
		Server: system.Server{
			Version: version, Metrics: s.c.metrics, MetricsToken: cfg.MetricsToken, Ready: s.ready, Releases: cfg.Releases,
		},
	})
	return s, nil
}

// programDir returns the directory of this program, where the runner may be, or "." if unknown.
func programDir() string {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return "."
	}
	return filepath.Dir(exe)
}

// OpenDatabase opens the database of a configuration.
func OpenDatabase(ctx context.Context, cfg Config, log *logrus.Entry) (*store.DB, error) {
	return store.Open(ctx, cfg.database(), store.Options{
		Log:     log.WithField("subsystem", "store"),
		BlobDir: filepath.Join(cfg.DataDir, "blobs"),
	})
}

func newComponents(ctx context.Context, cfg Config, version string, log *logrus.Entry) (*components, error) {
	db, err := OpenDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	c := &components{cfg: cfg, log: log, version: version, db: db, metrics: prometheus.NewRegistry(), draining: make(chan struct{})}
	c.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	secrets, err := OpenSecrets(ctx, cfg, db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.identity = identity.New(db, log.WithField("subsystem", "identity"))
	c.stacks = stacks.New(db, stacks.Options{
		Log: log.WithField("subsystem", "stacks"), Secrets: secrets, Lease: cfg.UpdateLease,
	})
	return c, nil
}

// OpenSecrets opens a database's key ring with the configured master key, creating the key only for
// a database that is not shared: a server with a new key could not read the others' secrets.
func OpenSecrets(ctx context.Context, cfg Config, db *store.DB) (*keyring.Ring, error) {
	path := cfg.MasterKeyFile
	create := path == ""
	if path == "" {
		path = filepath.Join(cfg.DataDir, "master-key")
	}
	key, err := keyring.LoadMasterKey(path, create)
	if err != nil {
		return nil, err
	}
	return keyring.Open(ctx, db, key)
}

// URL returns the server's URL for clients.
func (s *Server) URL() string { return s.cfg.ExternalURL }

func (s *Server) ready(r *http.Request) error {
	select {
	case <-s.c.draining:
		return errors.New("the server is stopping")
	default:
		if err := s.c.db.Ping(r.Context()); err != nil {
			return err
		}
		return s.c.db.Writable(r.Context())
	}
}

// Run serves until ctx ends, then stops in order: it refuses new connections, answers long polls,
// finishes requests in flight within the shutdown timeout, ends background work and closes the
// database. It returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	defer s.closeAll()
	hs := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	// Requests in flight outlive ctx; subsystems end with it.
	group, working := errgroup.WithContext(ctx)
	for _, sub := range s.subsystems {
		group.Go(func() error {
			supervise(working, s.log.WithField("subsystem", sub.Name), s.c.db, sub)
			return nil
		})
	}
	group.Go(func() error {
		err := hs.Serve(s.listener)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serving on %s: %w", s.listener.Addr(), err)
	})
	group.Go(func() error {
		<-working.Done()
		close(s.c.draining)
		s.log.Info("stopping")
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
		defer cancel()
		if err := hs.Shutdown(closing); err != nil {
			s.log.WithError(err).Warn("some requests did not finish in time and were cut off")
			return hs.Close()
		}
		return nil
	})
	s.log.WithFields(logrus.Fields{"listen": s.listener.Addr().String(), "url": s.cfg.ExternalURL}).Info("serving")
	return group.Wait()
}

func (s *Server) closeAll() {
	if s.listener != nil {
		s.listener.Close()
	}
	if s.c != nil {
		if err := s.c.db.Close(); err != nil {
			s.log.WithError(err).Warn("closing the database failed")
		}
	}
	if s.lock != nil {
		s.lock.Release()
	}
}

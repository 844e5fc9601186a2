// Package server runs the control plane as one process: it connects the domains, serves their API
// and runs their background work.
package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"workflowagent/internal/connlimit"
	"workflowagent/internal/server/acme"
	"workflowagent/internal/server/activity"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/mirror"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/system"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/certfile"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/console"
	"workflowagent/internal/server/console/home"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/identity/signin/passkey"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/runners"
	"workflowagent/internal/server/search"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/storage/usage"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/settings"
	"workflowagent/internal/sys/filelock"
	"workflowagent/internal/sys/initsystem"
)

// Server is a control plane that listens but does not serve yet.
type Server struct {
	cfg           config.Config
	log           *logrus.Entry
	listener      net.Listener
	connections   *connlimit.Limiter
	lock          *filelock.Lock
	db            *store.DB
	secrets       *keyring.Ring
	identity      *identity.Service
	stacks        *stacks.Service
	results       *results.Service
	triggers      *triggers.Service
	evaluator     *evaluator.Pool
	opening       *opening.Service
	quota         *quota.Quota
	organizations *organizations.Service
	issuer        *issuer.Service
	metrics       *prometheus.Registry
	handler       http.Handler
	http          *http.Server
	container     bool          // whether this process runs in a container
	certificate   certificates  // nil without TLS
	acme          *acme.Service // nil without ACME
	redirects     net.Listener  // for redirect, or nil
	redirect      *http.Server
	commands      net.Listener // of control, or nil
	control       *http.Server
	subsystems    []Subsystem
	draining      chan struct{} // closed when the server begins to stop
	supervision   initsystem.Supervision
	pulse         pulse
	urlNotice     string // for those who create stacks, or ""

	// running and metricsToken are what Reload changes.
	running      config.Config
	metricsToken atomic.Pointer[settings.Secret]
	unreloaded   atomic.Bool // the last reload has failed
	// loaded is the configuration as New received it, and load reads it again.
	loaded config.Config
	load   atomic.Pointer[func() (config.Config, error)]
}

// New opens the database, sets up an empty installation, and listens. It writes messages for the
// operator, such as the location of the first access token, to notices.
func New(ctx context.Context, cfg config.Config, version string, log *logrus.Entry, notices io.Writer) (_ *Server, err error) {
	s := &Server{cfg: cfg, loaded: cfg, running: cfg, log: log, metrics: prometheus.NewRegistry(), draining: make(chan struct{}), container: inContainer()}
	s.metricsToken.Store(&cfg.MetricsToken)
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer func() {
		if err != nil {
			s.closeAll()
		}
	}()
	s.supervision.Starting("opening the database")
	if err := s.openDataDir(); err != nil {
		return nil, err
	}
	if s.lock, err = lockDatabase(ctx, cfg); err != nil {
		return nil, err
	}
	if err = s.openNetwork(ctx); err != nil {
		return nil, err
	}
	if s.db, err = s.openDatabase(ctx, version); err != nil {
		return nil, err
	}
	secrets, err := OpenSecrets(ctx, s.cfg, s.db)
	if err != nil {
		return nil, err
	}
	s.secrets = secrets
	// Requests and background work share the memory.
	memory := budget.New(requestMemory(), memoryPatience)
	s.identity = identity.New(s.db, s.logOf("identity"))
	s.quota = quota.New(s.db, s.logOf("quota"), s.cfg.Quota)
	s.metrics.MustRegister(s.quota)
	s.organizations = organizations.New(s.db, s.logOf("organizations"), s.quota, s.cfg.MaxDeployments)
	s.stacks = stacks.New(s.db, stacks.Options{
		Log: s.logOf("stacks"), Secrets: secrets, Lease: s.cfg.UpdateLease, Memory: memory, Quota: s.quota, ExternalURL: s.cfg.ExternalURL,
		Console: s.cfg.Console(), KeepDeleted: s.cfg.KeepDeletedStacks,
	})
	s.results = results.New(s.db, results.Options{Log: s.logOf("policy-results"), Console: s.cfg.Console()})
	s.metrics.MustRegister(s.results.Metrics()...)
	if err := s.bootstrap(ctx, notices); err != nil {
		return nil, err
	}
	s.issuer = NewIssuer(s.cfg, s.db, secrets, s.logOf("issuer"))
	if err := s.issuer.Maintain(ctx); err != nil { // the first job needs a key
		s.logOf("issuer").WithError(err).Warn("maintaining the signing keys failed; the server tries again when it runs")
	}
	backups := newBackups(s.cfg, s.db, version, s.logOf("backup"))
	poolService := pools.New(s.db, s.logOf("pools"))
	forges := s.newIntegrations(secrets)
	packs, err := newPolicies(s.cfg, s.db, secrets, s.quota, s.logOf("policies"))
	if err != nil {
		return nil, err
	}
	envs := environments.New(s.db, environments.Options{Log: s.logOf("environments"), Secrets: secrets, Quota: s.quota})
	if s.opening, err = s.newOpening(envs, secrets); err != nil {
		return nil, err
	}
	policyEvaluations, excepted := s.newEvaluations(packs), exceptions.NewService(s.db, s.quota)
	service := s.newDeployments(poolService, forges, policyEvaluations, secrets)
	s.triggers = triggers.New(s.db, service, s.logOf("schedules"))
	hooks := webhooks.New(s.db, webhooks.Options{
		Log: s.logOf("webhooks"), Secrets: secrets, Receivers: &outbound.Client{Reach: s.cfg.Reach()}, Deploy: service.CreateIn,
	})
	s.subsystems = append(
		s.ownSubsystems(), Subsystem{Name: "deployments", Run: service.Run},
		Subsystem{Name: "policy-evaluations", Run: policyEvaluations.Run},
		Subsystem{Name: "old-policy-evaluations", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, policyEvaluations.Remove) }},
		Subsystem{Name: "scheduled-policy-evaluations", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, 10*time.Minute, policyEvaluations.Repeat) }},
		Subsystem{Name: "policy-packs", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, packs.Sweep) }},
		Subsystem{Name: "policy-exceptions", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, excepted.Sweep) }},
		Subsystem{Name: "policy-issues", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, s.results.Sweep) }},
		Subsystem{Name: "webhooks", Run: hooks.Run}, // every server sends
		Subsystem{Name: "webhook-records", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, 10*time.Minute, hooks.Sweep) }},
	)
	if s.cfg.BackupSchedule != "" {
		s.subsystems = append(s.subsystems, Subsystem{Name: "backups", Exclusive: true, Run: backups.Run})
	}
	definitions := source.New(envs)
	synced := s.newSources(forges, definitions, memory)
	events := s.newDispatch(forges, service, memory, synced)
	recoveries := recovery.New(s.db, service, s.logOf("recovery"))
	if err := recoveries.Begin(ctx); err != nil {
		return nil, err
	}
	s.hold(recoveries)
	s.metrics.MustRegister(service.LoadMetrics(), service.WorkspaceMetrics(), backups)
	providers, passkeys, err := s.newWays(secrets)
	if err != nil {
		return nil, err
	}
	sessions := signin.New(s.db, signin.Options{Log: s.logOf("sign-in"), Identity: s.identity, NoTokens: !s.cfg.TokenSignIn})
	s.subsystems = append(s.subsystems, Subsystem{Name: "sessions", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, sessions.Sweep) }})
	invited := invitations.New(s.db, s.logOf("invitations"))
	s.subsystems = append(s.subsystems, Subsystem{Name: "invitations", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, invited.Sweep) }})
	trust := oidc.New(s.db, &outbound.Client{Reach: s.cfg.Reach()}, s.logOf("oidc"))
	if err := errors.Join(forges.WarnOfKept(ctx), trust.WarnOfKept(ctx)); err != nil {
		return nil, err
	}
	list := estate.New(s.db, s.logOf("estate"))
	s.subsystems = append(s.subsystems, Subsystem{Name: "estate", Exclusive: true, Run: list.Run})
	pages := console.New(console.Deps{
		Estate: list, Search: search.New(s.db), Results: s.results, Exceptions: excepted,
		Site: page.Options{
			Log: s.logOf("console"), Identity: s.identity, Stacks: s.stacks, Sessions: sessions, Notes: s.db, Memory: memory,
			Starred: console.Stars(list), Numbers: home.Counters{Deployments: service, Pools: poolService, Stacks: s.stacks, Estate: list, Invitations: invited}.Numbers, Restored: recoveries.BackupOf, URL: string(s.cfg.Console()), Plain: s.plainAddress(), Draining: s.draining,
		},
		Identity: s.identity, Organizations: s.organizations, SignIn: sessions, Invitations: invited, Grants: grants.New(s.db), Providers: providers, Passkeys: passkeys, Stacks: s.stacks, Deployments: service, Pools: poolService, Drift: drift.New(s.db), Triggers: s.triggers,
		Policies: packs, Evaluations: policyEvaluations, Environments: envs, Opening: s.opening,
		Webhooks: hooks, Integrations: forges, Events: events, OIDC: trust, Recovery: recoveries, Issuer: s.cfg.Issuer(), APIURL: s.cfg.ExternalURL, URLNotice: s.urlNotice, Audit: audit.New(s.db), Activity: activity.New(s.db, s.logOf("activity")), Server: s.describe(version, backups), Releases: cfg.Releases,
	})
	if err := s.offerLink(ctx, sessions, notices); err != nil {
		return nil, err
	}
	shown, err := newMirror(s.cfg, secrets, version)
	if err != nil {
		return nil, err
	}
	observe := web.Observe(s.logOf("api"), s.metrics)
	routes := api.New(api.Deps{
		Log:           s.logOf("api"),
		Observe:       observe,
		Identity:      s.identity,
		Organizations: s.organizations,
		Stacks:        s.stacks,
		Deployments:   service,
		Triggers:      s.triggers,
		Pools:         poolService,
		Drift:         drift.New(s.db),
		Usage:         usage.New(s.db),
		Webhooks:      hooks,
		Policies:      packs,
		Environments:  envs,
		Opening:       s.opening,
		Sources:       synced,
		Evaluations:   policyEvaluations,
		Results:       s.results,
		Exceptions:    excepted,
		Forges:        forges,
		Events:        events,
		Audit:         audit.New(s.db),
		Invitations:   invited,
		Grants:        grants.New(s.db),
		OIDC:          trust,
		Recovery:      recoveries,
		Issuer:        s.issuer,
		RunnerDir:     programDir(),
		ExternalURL:   s.cfg.ExternalURL,
		Console:       s.cfg.Console(),
		Limits:        request.Limits{Memory: memory},
		Mirror:        shown,
		URLNotice:     s.urlNotice,
		Server: system.Server{
			Metrics: s.metrics, MetricsToken: s.currentMetricsToken, Ready: s.ready, Releases: cfg.Releases,
		},
	})
	s.handler = console.Split(routes, observe(pages.Handler()))
	if s.cfg.ACMETerms {
		if s.acme, err = s.newACME(ctx, secrets); err != nil {
			return nil, err
		}
		s.certificate = s.acme
		s.subsystems = append(s.subsystems, Subsystem{Name: "acme", Run: s.acme.Run})
	}
	if s.certificate != nil {
		s.subsystems = append(s.subsystems, newExpiryWatch(s.certificate, s.logOf("tls"), s.metrics).subsystem())
	}
	s.prepareHTTP()
	s.openControl(version, memory, admin.Services{Identity: s.identity, Organizations: s.organizations, Sessions: sessions, Pools: poolService, Stacks: s.stacks, Grants: grants.New(s.db), Environments: envs, Sources: definitions, EnvironmentSources: synced, Evaluations: policyEvaluations, Console: s.cfg.Console(), Backups: backups, Recovery: recoveries})
	if s.cfg.Runners > 0 {
		s.subsystems = append(s.subsystems, Subsystem{Name: "runners", Run: s.newRunners(poolService, version).Run})
	} else {
		s.warnOfBuiltInJobs(ctx, poolService)
	}
	return s, nil
}

// newWays returns the ways to sign in that have settings.
func (s *Server) newWays(secrets *keyring.Ring) (*openid.Service, *passkey.Service, error) {
	log, url := s.logOf("sign-in"), string(s.cfg.Console())
	var list []openid.Config
	if s.cfg.SignInFile != "" {
		var err error
		if list, err = openid.Load(s.cfg.SignInFile); err != nil {
			return nil, nil, err
		}
	}
	providers, err1 := openid.New(openid.Options{Log: log, Secrets: secrets, Providers: list, URL: url})
	passkeys, err2 := passkey.New(s.db, passkey.Options{Log: log, Secrets: secrets, URL: url})
	return providers, passkeys, errors.Join(err1, err2)
}

func (s *Server) newRunners(poolService *pools.Service, version string) *runners.Service {
	return runners.New(s.db, poolService, runners.Options{
		Log: s.logOf("runners"), Slots: s.cfg.Runners, Org: s.cfg.RunnersOrg, User: s.cfg.RunnersUser, Target: s.cfg.RunnersTarget,
		Dir: s.cfg.RunnersDir, Programs: programDir(), Version: version, URL: s.cfg.ExternalURL, Listen: s.listener.Addr(),
		DataDir: s.cfg.DataDir, Serve: func(l net.Listener) error { return s.http.Serve(s.connections.Listener(l)) }, Getenv: os.Getenv, Environ: os.Environ(),
	})
}

// warnOfBuiltInJobs logs a warning if an earlier start of this server had built-in runners, whose
// deployments still run without an agent.
func (s *Server) warnOfBuiltInJobs(ctx context.Context, poolService *pools.Service) {
	log := s.logOf("runners")
	host, err := os.Hostname()
	var running int64
	if err == nil {
		running, err = poolService.BuiltInJobs(ctx, host)
	}
	if err != nil {
		log.WithError(err).Warn("the server does not know whether deployments of built-in runners still run")
		return
	}
	if running > 0 {
		log.WithFields(logrus.Fields{"deployments": running, "job_lost": s.cfg.JobLost}).
			Warn("deployments of the built-in runners have not finished, but the server started without --runners, so they fail as lost if they cannot report for the time job_lost: start the server with --runners again, and omit it when they have finished")
	}
}

func (s *Server) logOf(subsystem string) *logrus.Entry {
	return s.log.WithField("subsystem", subsystem)
}

func (s *Server) newDeployments(poolService *pools.Service, forges *integrations.Service, policyEvaluations *evaluations.Service, secrets *keyring.Ring) *deployments.Service {
	cfg := s.cfg
	service := deployments.New(s.db, deployments.Options{
		Log: s.logOf("deployments"), Secrets: secrets, Updates: s.stacks, Pools: poolService, Quota: s.quota, Issuer: s.issuer, Repositories: forges, Evaluations: policyEvaluations,
		ExternalURL: cfg.ExternalURL, Console: cfg.Console(), DefaultImage: cfg.DefaultImage, Cap: cfg.MaxDeployments,
		Lease: cfg.JobLease, Lost: cfg.JobLost,
		// Leases of seconds need a short interval, because a pause of up to three intervals does not
		// extend a lease.
		Sweep: min(5*time.Second, max(50*time.Millisecond, min(cfg.JobLease/5, cfg.JobLost/5, cfg.UpdateLease/20))),
	})
	s.stacks.Follow(stacks.Hooks{
		LinkUpdate: service.LinkUpdate, MayWrite: service.MayWrite, StackDeleted: service.StackDeleted, UpdateFinished: service.UpdateFinished, KnownSecrets: s.knownSecrets(service), Openings: s.opening.Openings,
		Started:      s.opening.UpdateStarted,
		StateChanged: policyEvaluations.StateChanged,
		Recorded:     s.results.Recorded, Ended: s.results.Ended,
	})
	return service
}

// programDir returns the directory of this program, which can contain the runner. If the directory
// is unknown, it returns ".".
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

// CheckFiles checks the files that a configuration names, without changing anything.
func CheckFiles(cfg config.Config) error {
	var errs []error
	if cfg.SignInFile != "" {
		_, err := openid.Load(cfg.SignInFile)
		errs = append(errs, err)
	}
	if key := cfg.MasterKey(); !key.Create && key.Command == "" { // a check must not call a service
		_, err := key.Load(context.Background())
		errs = append(errs, err)
	}
	if cfg.TLSCert != "" {
		errs = append(errs, certfile.Check(cfg.TLSCert, cfg.TLSKey))
	}
	if cfg.ACMECAFile != "" {
		_, err := trusting(cfg.ACMECAFile)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// newMirror returns what shows the doctor how its requests arrive.
func newMirror(cfg config.Config, secrets *keyring.Ring, version string) (mirror.Server, error) {
	key, err := secrets.Derive(mirror.Purpose)
	host, _ := os.Hostname() // distinguishes servers in the report
	return mirror.Server{Key: key, Trust: cfg.Trust(), Instance: mirror.NewInstance(), Host: host, Version: version}, err
}

// NewIssuer returns the issuer of a configuration.
func NewIssuer(cfg config.Config, db *store.DB, secrets *keyring.Ring, log *logrus.Entry) *issuer.Service {
	return issuer.New(db, issuer.Options{
		Log: log, Secrets: secrets, URL: cfg.Issuer(), Rotation: cfg.KeyRotation, Audiences: cfg.Audiences, SessionTags: cfg.SessionTags,
	})
}

// URL returns the server's URL for clients.
func (s *Server) URL() string { return s.cfg.ExternalURL }

func (s *Server) ready(r *http.Request) error {
	select {
	case <-s.draining:
		return errors.New("the server is stopping")
	default:
		if err := s.db.Ping(r.Context()); err != nil {
			return err
		}
		return s.db.Writable(r.Context())
	}
}

// Run serves until ctx is canceled, then stops in order: it refuses new connections, ends long
// polls, finishes requests in flight within the shutdown timeout, stops background work and closes
// the database. After such a stop it returns nil.
func (s *Server) Run(ctx context.Context) error {
	defer s.closeAll()
	// Requests in flight continue after ctx is canceled; subsystems do not.
	group, working := errgroup.WithContext(ctx)
	for _, sub := range s.subsystems {
		group.Go(func() error {
			supervise(working, s.logOf(sub.Name), s.db, sub)
			return nil
		})
	}
	group.Go(func() error { return serve(s.http, s.listener, s.certificate != nil) })
	if s.redirect != nil {
		group.Go(func() error { return serve(s.redirect, s.redirects, false) })
	}
	if s.control != nil {
		group.Go(func() error { return serve(s.control, s.commands, false) })
	}
	group.Go(func() error { return s.watchDatabase(working) })
	group.Go(func() error {
		s.stayPresent(working)
		return nil
	})
	group.Go(func() error {
		s.pulse.run(working, s.handler)
		return nil
	})
	group.Go(func() error {
		<-working.Done()
		close(s.draining)
		s.log.Info("stopping")
		s.supervision.Stopping(s.cfg.ShutdownTimeout + stopMargin)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
		defer cancel()
		if s.redirect != nil {
			_ = s.redirect.Close() // its requests take no time
		}
		var commands sync.WaitGroup
		defer commands.Wait()
		if s.control != nil {
			commands.Go(func() { s.shutDown(closing, s.control) })
		}
		s.shutDown(closing, s.http)
		return nil
	})
	s.log.WithFields(logrus.Fields{"listen": s.listener.Addr().String(), "url": s.cfg.ExternalURL}).Info("serving")
	s.supervision.Say(s.status, s.pulse.alive)
	return group.Wait()
}

func (s *Server) closeAll() {
	s.supervision.Close()
	for _, l := range []net.Listener{s.listener, s.redirects, s.commands} {
		if l != nil {
			l.Close()
		}
	}
	if s.acme != nil {
		s.acme.Close()
	}
	if s.evaluator != nil {
		s.evaluator.Close()
	}
	if s.db != nil {
		if err := s.db.Close(); err != nil {
			s.log.WithError(err).Warn("closing the database failed")
		}
	}
	if s.lock != nil {
		s.lock.Release()
	}
}

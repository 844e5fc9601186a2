// Package runners runs the server's own agent as a child process, so that one command is a control
// plane with runners.
//
// The agent is the same program that users install elsewhere. It runs as a system user that differs
// from the server's, because access to a Docker Engine is equivalent to root, and the server does
// not need it. The agent's pool token rotates with each start. When the server stops, the agent
// detaches from its jobs, and the next start resumes them.
package runners

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// Values of [Options.Target].
const (
	Docker  = "docker"
	Process = "process"
)

// Program is the name of the agent's program.
const Program = "customer-managed-workflow-agent"

// Options configure a [Service].
type Options struct {
	Log    *logrus.Entry
	Slots  int    // number of jobs that run at once
	Org    string // name of the organization; "" means the only one
	User   string // system user of the agent
	Target string // Docker or Process
	Dir    string // directory of the agents of all servers on this machine

	Programs string // directory with the agent and the runner
	Version  string // of the server, which must be the agent's
	URL      string // the server's URL for clients
	Listen   net.Addr
	DataDir  string // distinguishes the servers on this machine
	// Serve serves the API on one more listener until the listener is closed.
	Serve   func(net.Listener) error
	Getenv  func(string) string
	Environ []string
}

// Service supervises the agent.
type Service struct {
	opts  Options
	db    *store.DB
	pools *pools.Service
	key   string // distinguishes this server's objects on the machine

	warned bool // that connections are not refused; used by Run only
}

// New returns a service. The caller must call [Service.Run].
func New(db *store.DB, p *pools.Service, o Options) *Service {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		dir = o.DataDir
	}
	sum := sha256.Sum256([]byte(dir))
	return &Service{opts: o, db: db, pools: p, key: hex.EncodeToString(sum[:4])}
}

// checkEvery is the interval at which the service checks what the agent depends on.
const checkEvery = 30 * time.Second

var restart = retry.Policy{First: time.Second, Max: time.Minute}

// Run keeps the agent running until ctx is canceled, and then stops it. It logs each problem once.
func (s *Service) Run(ctx context.Context) error {
	// The kernel signals the child when the thread that started it exits.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	problem := ""
	for failures := 0; ; failures++ {
		began := time.Now()
		err := s.runAgent(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > restart.Max {
			failures, problem = 0, ""
		}
		if text := err.Error(); text != problem {
			problem = text
			s.opts.Log.WithError(err).Error("the built-in runners do not run; retrying")
		}
		if retry.Sleep(ctx, restart.Pause(failures, nil)) != nil {
			return nil
		}
	}
}

// runAgent starts the agent and returns when the agent has exited or must not continue.
func (s *Service) runAgent(ctx context.Context) error {
	org, err := s.organization(ctx)
	if err != nil {
		return err
	}
	acc, err := s.account(ctx)
	if err != nil {
		return err
	}
	if err := s.checkAgent(ctx, acc); err != nil {
		return err
	}
	var wall *firewall
	settings := map[string]string{}
	if s.opts.Target == Docker {
		var end func()
		if wall, end, err = s.connect(ctx, acc, settings); err != nil {
			return err
		}
		defer end()
	}
	dir, err := s.prepareDir(acc)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("reading the host's name: %w", err)
	}
	made, err := s.pools.BuiltIn(ctx, org.ID, host, s.key)
	if err != nil {
		return err
	}
	if err := s.writeConfig(dir, acc, made.Token, settings); err != nil {
		return err
	}
	child, err := s.start(acc, dir)
	if err != nil {
		return err
	}
	s.opts.Log.WithFields(logrus.Fields{
		"organization": org.Name, "pool": made.Pool.ID, "pid": child.cmd.Process.Pid, "user": acc.name, "slots": s.opts.Slots, "deploy_target": s.opts.Target,
	}).Info("started the built-in runners")
	defer child.stop()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-child.exited:
			return fmt.Errorf("the agent of the built-in runners exited: %w", err)
		case <-tick.C:
			if err := s.recheck(ctx, org, made.Pool.ID, wall); err != nil {
				return err
			}
		}
	}
}

// recheck returns an error if the agent must not continue.
func (s *Service) recheck(ctx context.Context, org store.Organization, poolID string, wall *firewall) error {
	again, err := s.organization(ctx)
	if err != nil {
		return err
	}
	if again.ID != org.ID {
		return errors.New("the organization of the built-in runners has changed")
	}
	if err := s.pools.Exists(ctx, org.ID, poolID); err != nil {
		return err
	}
	if wall == nil {
		return nil
	}
	if err := wall.standing(); err != nil {
		return err
	}
	return wall.install(ctx)
}

// organization returns the organization whose deployments the agent runs.
func (s *Service) organization(ctx context.Context) (store.Organization, error) {
	all, err := store.Read(ctx, s.db, (*store.Tx).Organizations)
	if err != nil {
		return store.Organization{}, fmt.Errorf("listing organizations: %w", err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
	}
	switch {
	case s.opts.Target == Process && len(all) > 1:
		return store.Organization{}, fmt.Errorf("built-in runners with --runners-target process are refused: the server has more than one organization (%s), whose deployments could read each other's files; use the docker target", strings.Join(names, ", "))
	case s.opts.Org == "" && len(all) == 1:
		return all[0], nil
	case s.opts.Org == "":
		return store.Organization{}, fmt.Errorf("the server has several organizations (%s): choose the one of the built-in runners with --runners-org", strings.Join(names, ", "))
	}
	for _, o := range all {
		if o.Name == s.opts.Org {
			return o, nil
		}
	}
	return store.Organization{}, fmt.Errorf("--runners-org: the organization %q does not exist; the server has %s", s.opts.Org, strings.Join(names, ", "))
}

// connect prepares the jobs' network: it creates the bridge, lets the bridge reach only the API, and
// if the server's URL is on loopback, serves the API on the bridge too.
func (s *Service) connect(ctx context.Context, acc account, settings map[string]string) (wall *firewall, end func(), err error) {
	external, err := url.Parse(s.opts.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the server's URL: %w", err)
	}
	network, err := s.ensureNetwork(ctx, acc)
	if err != nil {
		return nil, nil, err
	}
	settings["docker_network"] = network.Name
	end = func() {}
	wall = &firewall{bridge: network.Bridge, gateway: network.Gateway, subnet: network.Subnet.Masked(), chain: "WORKFLOW-" + s.key, cannotRefuse: s.warnOfTimeouts}
	if !protocol.IsLoopback(external.Host) {
		wall.port = portOf(external)
		return wall, end, wall.install(ctx)
	}
	listening, err := netip.ParseAddrPort(s.opts.Listen.String())
	if err != nil || external.Scheme != "http" {
		return nil, nil, fmt.Errorf("the jobs of built-in runners cannot reach %s on loopback: use http, or an --external-url that containers can reach", s.opts.URL)
	}
	at := netip.AddrPortFrom(network.Gateway, listening.Port())
	settings["docker_server_address"] = at.String()
	wall.only, wall.port = network.Gateway, fmt.Sprint(listening.Port())
	if err := wall.install(ctx); err != nil {
		return nil, nil, err
	}
	if listening.Addr().IsUnspecified() {
		return wall, end, nil
	}
	plain, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the jobs of built-in runners: %w", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		err := s.opts.Serve(subnetListener{plain, network.Subnet})
		s.opts.Log.WithError(err).Debug("stopped serving the jobs of the built-in runners")
	}()
	return wall, func() {
		plain.Close()
		<-served
	}, nil
}

// warnOfTimeouts logs once why connections of jobs to other ports of this machine are dropped.
func (s *Service) warnOfTimeouts(err error) {
	if !s.warned {
		s.warned = true
		s.opts.Log.WithError(err).Warn("connections of jobs to other ports of this machine time out instead of failing at once: the kernel needs iptables' tables filter and security, and the target REJECT")
	}
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// subnetListener accepts only connections from a subnet. Hosts on the same link as this machine
// could otherwise reach the address of the bridge.
type subnetListener struct {
	net.Listener
	subnet netip.Prefix
}

func (l subnetListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err == nil && l.subnet.Contains(from.Addr().Unmap()) {
			return conn, nil
		}
		conn.Close()
	}
}

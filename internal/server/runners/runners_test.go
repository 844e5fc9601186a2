package runners

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func newService(t *testing.T, o Options) *Service {
	t.Helper()
	db := storetest.SQLite(t)
	if err := identity.New(db, storetest.Log()).Bootstrap(t.Context(), "acme", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	o.Log = storetest.Log()
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	return New(db, pools.New(db, storetest.Log()), o)
}

func TestOrganizations(t *testing.T) {
	for _, tt := range []struct {
		name, org, target string
		second            bool
		want              string
	}{
		{name: "the only one", target: Docker},
		{name: "named", org: "acme", target: Docker, second: true},
		{name: "several", target: Docker, second: true, want: "choose the one of the built-in runners with --runners-org"},
		{name: "unknown", org: "other", target: Docker, want: `the organization "other" does not exist`},
		{name: "process", target: Process},
		{name: "process with several", org: "acme", target: Process, second: true, want: "more than one organization"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, Options{Org: tt.org, Target: tt.target})
			if tt.second {
				if err := s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
					return tx.InsertOrganization(store.Organization{ID: "2", Name: "second", CreatedAt: tx.Now()})
				}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.organization(t.Context())
			switch {
			case tt.want == "" && (err != nil || got.Name != "acme"):
				t.Errorf("%q, %v, want acme", got.Name, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAccounts(t *testing.T) {
	for name, want := range map[string]string{
		"nobody": "", "root": "is root or the server's own user", "no-such-user": "does not exist",
	} {
		s := newService(t, Options{User: name, Target: Process})
		got, err := s.account(t.Context())
		switch {
		case os.Geteuid() != 0:
			if err == nil || !strings.Contains(err.Error(), "runs as root") {
				t.Errorf("%s, without root: %v", name, err)
			}
		case want == "" && (err != nil || got.uid == 0):
			t.Errorf("%s: %+v, %v", name, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: the error is %v, want %q", name, err, want)
		}
	}
}

func TestAgentInPrivateDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("starting a program as another user requires root")
	}
	dir := t.TempDir()
	err := os.WriteFile(filepath.Join(dir, Program), []byte("#!/bin/sh\n"), 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, Options{Programs: dir})
	err = s.checkAgent(t.Context(), account{name: "nobody", uid: 65534, gid: 65534})
	if err == nil || !strings.Contains(err.Error(), "a directory that all users can enter") {
		t.Errorf("the error is %v", err)
	}
}

func TestConfigIsPrivate(t *testing.T) {
	s := newService(t, Options{Dir: t.TempDir(), Target: Docker, Slots: 3, URL: "http://127.0.0.1:8800", Programs: "/opt/x"})
	acc := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	if os.Geteuid() == 0 {
		acc.uid, acc.gid = 65534, 65534
	}
	dir, err := s.prepareDir(acc)
	if err != nil {
		t.Fatal(err)
	}
	// The agent's user cannot redirect the file, because it cannot change the directory.
	for _, name := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	for _, token := range []string{"pul-1", "pul-2"} {
		if err := s.writeConfig(dir, acc, token, map[string]string{"docker_network": "n", "docker_server_address": "172.18.0.1:8800"}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(configFile(dir))
		if err != nil || !strings.Contains(string(text), "\ntoken: "+token+"\n") || !strings.Contains(string(text), "\nmax_concurrent_jobs: 3\n") {
			t.Errorf("the configuration is %s, %v", text, err)
		}
	}
	if info, err := os.Stat(configFile(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration has the mode %v, %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".agent-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := s.prepareDir(acc); err != nil {
		t.Errorf("the second start: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	s := newService(t, Options{
		Environ: []string{
			"PATH=/bin", "AWS_PROFILE=x", "SECRET=1", "WORKFLOW_SERVER_DATABASE=postgres://u:p@h/d", "PULUMI_ACCESS_TOKEN=pul-1",
			"PULUMI_AGENT_PULL_IMAGE=false", "PULUMI_AGENT_TOKEN=pul-2", "PULUMI_AGENT_DOCKER_NETWORK=host", "PULUMI_AGENT_DEPLOY_TARGET=process",
			"PULUMI_AGENT_ENV_FORWARD_ALLOWLIST=AWS_PROFILE PULUMI_AGENT_TOKEN",
		},
		Getenv: func(name string) string {
			return map[string]string{"PULUMI_AGENT_ENV_FORWARD_ALLOWLIST": "AWS_PROFILE PULUMI_AGENT_TOKEN"}[name]
		},
	})
	want := []string{
		"HOME=/h", "PATH=/bin", "AWS_PROFILE=x", "PULUMI_AGENT_PULL_IMAGE=false",
		"PULUMI_AGENT_ENV_FORWARD_ALLOWLIST=AWS_PROFILE PULUMI_AGENT_TOKEN",
	}
	if got := s.environment("/h"); !slices.Equal(got, want) {
		t.Errorf("the environment is %q, want %q", got, want)
	}
}

func TestRules(t *testing.T) {
	f := firewall{bridge: "wfr-1", chain: "WORKFLOW-1", subnet: netip.MustParsePrefix("172.18.0.0/16"), only: netip.MustParseAddr("172.18.0.1"), port: "8800"}
	if drop := strings.Join(f.choosing(false), "\n"); strings.Contains(drop, "MARK") || !strings.Contains(drop, "-A WORKFLOW-1 -m addrtype --dst-type LOCAL -j DROP\n") {
		t.Errorf("without the tables that refuse, the rules do not drop everything:\n%s", drop)
	}
	rules := strings.Join(slices.Concat(f.refusing(), f.choosing(true), []string{""}), "\n")
	order := []string{
		"*security\n:WORKFLOW-1 - [0:0]\n",
		"*filter\n:WORKFLOW-1 - [0:0]\n",
		"*mangle\n:WORKFLOW-1 - [0:0]\n",
		"-A WORKFLOW-1 -p tcp -d 172.18.0.1/32 -m tcp --dport 8800 -j RETURN\n",
		"-A WORKFLOW-1 -p tcp -m addrtype --dst-type LOCAL -j MARK --set-xmark 0x800000/0x800000\n",
		"-A WORKFLOW-1 -m addrtype --dst-type LOCAL -j DROP\n",
		"-A WORKFLOW-1 -d 172.18.0.0/16 -j DROP\n",
		"-A WORKFLOW-1 -d 169.254.0.0/16 -p udp -m udp --dport 53 -j RETURN\n",
		"-A WORKFLOW-1 -d 169.254.0.0/16 -j DROP\n",
		"COMMIT\n",
	}
	at := 0
	for _, line := range order {
		i := strings.Index(rules[at:], line)
		if i < 0 {
			t.Fatalf("%q is missing or in the wrong place:\n%s", line, rules)
		}
		at += i
	}
	f.only = netip.Addr{}
	if want := "-p tcp -m addrtype --dst-type LOCAL -m tcp --dport 8800 -j RETURN"; !strings.Contains(strings.Join(f.choosing(true), "\n"), want) {
		t.Errorf("%q is missing:\n%s", want, strings.Join(f.choosing(true), "\n"))
	}
}

// TestRemovedBridge checks that the service notices that the jobs' network is gone, without which
// all jobs would fail until the next start.
func TestRemovedBridge(t *testing.T) {
	for _, tt := range []struct {
		bridge, gateway, want string
	}{
		{"lo", "127.0.0.1", ""},
		{"lo", "172.18.0.1", "was removed or changed"},
		{"wfr-none", "172.18.0.1", "was removed or changed"},
	} {
		f := firewall{bridge: tt.bridge, gateway: netip.MustParseAddr(tt.gateway)}
		if err := f.standing(); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s with %s: %v, want %q", tt.bridge, tt.gateway, err, tt.want)
		}
	}
}

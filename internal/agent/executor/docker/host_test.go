package docker

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/testcert"

	"workflowagent/internal/protocol"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
)

func cycle(t *testing.T, e *Executor, docker *client.Client) {
	t.Helper()
	if err := e.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, err := prepare(t, e, spec(testImage))
	if err != nil {
		t.Fatal(err)
	}
	j := jobOf(t, h)
	found, err := docker.ContainerInspect(t.Context(), j.Name, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found.Container.Mounts {
		want := mount.TypeVolume
		if e.opts.SharedVolumeDirectory != "" && m.Destination == defaultJobDir {
			want = mount.TypeBind
		}
		if m.Type != want {
			t.Errorf("%s is a %s, want a %s", m.Destination, m.Type, want)
		}
	}
	if len(found.Container.HostConfig.Binds) > 0 || len(found.Container.Mounts) != 2 {
		t.Errorf("binds %q, mounts %+v", found.Container.HostConfig.Binds, found.Container.Mounts)
	}
	document := `{"secret":"s","actions":[{"print":"hello\n"},{"writeFile":"spool/step-0001.state"},{"exit":7}]}`
	if err := e.Start(t.Context(), h, []byte(document)); err != nil {
		t.Fatal(err)
	}
	if exit, err := e.Wait(t.Context(), h); err != nil || exit.Code != 7 {
		t.Fatalf("Wait: %+v, %v", exit, err)
	}
	dst := filepath.Join(t.TempDir(), "spool")
	if err := e.CopySpool(t.Context(), h, dst); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dst, "step-0001.state")); err != nil {
		t.Error("the spool was not copied:", err)
	}
	if j.Shared != "" {
		if _, err := os.Stat(filepath.Join(j.Shared, sharedJob, protocol.DirSpool, "step-0001.state")); err != nil {
			t.Error("the job's directory is not the one on the host:", err)
		}
	}
}

func TestSharedDirectoryIsMounted(t *testing.T) {
	host, runnerDir := needEngine(t)
	e := newExecutor(t, Options{Config: Config{Host: host}, WorkingDirectory: runnerDir, SharedVolumeDirectory: t.TempDir()})
	defer e.Close()
	cycle(t, e, labClient(t))
}

func TestEngineOverTCP(t *testing.T) {
	host, runnerDir := needEngine(t)
	if !strings.HasPrefix(host, "unix://") {
		t.Skip("the engine has no socket on this host")
	}
	r := &relay{engine: strings.TrimPrefix(host, "unix://"), conns: map[net.Conn]struct{}{}, accepted: make(chan struct{}, 1000)}
	r.up(t)
	t.Cleanup(func() {
		r.down()
		r.running.Wait()
	})
	setEnvironment(t, t.TempDir(), map[string]string{"DOCKER_HOST": "tcp://" + r.listener.Addr().String()})
	e := newExecutor(t, Options{WorkingDirectory: runnerDir})
	defer e.Close()
	cycle(t, e, labClient(t))
	// An engine on another host cannot reach a server on loopback.
	s := spec(testImage)
	s.Loopback, s.LoopbackOK = true, true
	if _, err := prepare(t, e, s); err == nil || !strings.Contains(err.Error(), "another host") {
		t.Errorf("Prepare for a server on loopback: %v", err)
	}
}

// issue creates a certificate in a directory as Docker's clients and engine expect it.
func issue(t *testing.T, a *testcert.Authority, name string, use x509.ExtKeyUsage) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := must.Get(a.Issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{use}}, "127.0.0.1"))(t)
	must.OK(t, testcert.Write(c, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	must.OK(t, os.WriteFile(filepath.Join(dir, "ca.pem"), a.PEM(), 0o600))
	return dir
}

func TestEngineOverTLS(t *testing.T) {
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	_, runnerDir := needEngine(t)
	ours, theirs := must.Get(testcert.NewAuthority("ours"))(t), must.Get(testcert.NewAuthority("theirs"))(t)
	server, user, stranger := issue(t, ours, "engine", x509.ExtKeyUsageServerAuth), issue(t, ours, "agent", x509.ExtKeyUsageClientAuth), issue(t, theirs, "stranger", x509.ExtKeyUsageClientAuth)
	port, err := child.FreePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	host := "tcp://127.0.0.1:" + strconv.Itoa(port)
	dir, err := os.MkdirTemp("", "wft") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	private, err := lab.StartEngine(t.Context(), dir, "--host="+host, "--tlsverify",
		"--tlscacert="+server+"/ca.pem", "--tlscert="+server+"/cert.pem", "--tlskey="+server+"/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := private.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := importImage(private, testImage); err != nil {
		t.Fatal(err)
	}
	docker, err := private.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer docker.Close()
	at := func(t *testing.T, env map[string]string) *Executor {
		env["DOCKER_HOST"] = host
		setEnvironment(t, t.TempDir(), env)
		return newExecutor(t, Options{WorkingDirectory: runnerDir})
	}
	e := at(t, map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": user})
	t.Cleanup(func() { _ = e.Close() }) // runs after the cleanup that removes the job
	cycle(t, e, docker)

	mixed := t.TempDir() // for a client that trusts the engine but is not trusted by it
	for _, file := range []string{"ca.pem", "cert.pem", "key.pem"} {
		from := map[bool]string{true: user, false: stranger}[file == "ca.pem"]
		data, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mixed, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no TLS":                     {map[string]string{}, "requires TLS"},
		"an engine of another owner": {map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": stranger}, "cannot be verified"},
		"an untrusted certificate":   {map[string]string{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": mixed}, "does not accept the agent's certificate"},
		"no certificates":            {map[string]string{"DOCKER_TLS_VERIFY": "1"}, "ca.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			e := at(t, tc.env)
			defer e.Close()
			err := e.Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "\n") {
				t.Errorf("Check: %v, want one line with %q", err, tc.want)
			}
			t.Log(err)
		})
	}
}

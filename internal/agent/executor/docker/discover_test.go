package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func writeContext(t *testing.T, home, name, host string) {
	t.Helper()
	sum := sha256.Sum256([]byte(name))
	meta := filepath.Join(home, ".docker", "contexts", "meta", hex.EncodeToString(sum[:]))
	tls := filepath.Join(home, ".docker", "contexts", "tls", hex.EncodeToString(sum[:]), "docker")
	err := errors.Join(
		os.MkdirAll(meta, 0o700), os.MkdirAll(tls, 0o700),
		os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(`{"currentContext":"`+name+`","auths":{}}`), 0o600),
		os.WriteFile(filepath.Join(meta, "meta.json"), []byte(`{"Name":"`+name+`","Metadata":{},"Endpoints":{"docker":{"Host":"`+host+`","SkipTLSVerify":false}}}`), 0o600),
		os.WriteFile(filepath.Join(tls, "ca.pem"), nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
}

func TestDiscover(t *testing.T) {
	contextHome, emptyHome := t.TempDir(), t.TempDir()
	writeContext(t, contextHome, "desktop", "unix:///Users/u/.docker/run/docker.sock")
	sshHome := t.TempDir()
	writeContext(t, sshHome, "far", "ssh://u@far")
	runtimeDir, err := os.MkdirTemp("", "wfs") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtimeDir) })
	listener, err := net.Listen("unix", filepath.Join(runtimeDir, "docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	for _, test := range []struct {
		name string
		host string // docker_host in the configuration
		home string
		env  map[string]string
		want string // the expected host, or a part of the error
		fail bool
	}{
		{"configured", "unix:///c.sock", contextHome, map[string]string{"DOCKER_HOST": "unix:///e.sock"}, "unix:///c.sock", false},
		{"DOCKER_HOST", "", contextHome, map[string]string{"DOCKER_HOST": "unix:///e.sock"}, "unix:///e.sock", false},
		{"TLS", "", emptyHome, map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_CERT_PATH": "/c", "DOCKER_TLS_VERIFY": "1"}, "tcp://h:2376", false},
		{"unverified TLS", "", emptyHome, map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_CERT_PATH": "/c"}, "DOCKER_TLS_VERIFY=1", true},
		{"TLS of the docker command", "", contextHome, map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1"}, "tcp://h:2376", false},
		{"TLS without certificates", "", "", map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1"}, "neither DOCKER_CERT_PATH", true},
		{"no scheme", "", emptyHome, map[string]string{"DOCKER_HOST": "h:2376"}, "use a form like", true},
		{"SSH", "", emptyHome, map[string]string{"DOCKER_HOST": "ssh://u@h"}, "SSH is not supported", true},
		{"current context", "", contextHome, nil, "unix:///Users/u/.docker/run/docker.sock", false},
		{"chosen context", "", contextHome, map[string]string{"DOCKER_CONTEXT": "missing"}, `docker context "missing"`, true},
		{"default context", "", contextHome, map[string]string{"DOCKER_CONTEXT": "default", "XDG_RUNTIME_DIR": runtimeDir}, "", false},
		{"context over SSH", "", sshHome, nil, "SSH is not supported", true},
		{"moved configuration", "", emptyHome, map[string]string{"DOCKER_CONFIG": filepath.Join(contextHome, ".docker")}, "unix:///Users/u/.docker/run/docker.sock", false},
		{"a socket that accepts connections", "", emptyHome, map[string]string{"XDG_RUNTIME_DIR": runtimeDir}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			setEnvironment(t, test.home, test.env)
			got, err := discover(test.host)
			switch {
			case test.fail && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("found %+v, %v; want an error with %q", got, err, test.want)
			case !test.fail && err != nil:
				t.Error(err)
			case !test.fail && test.want == "": // on this host, an engine's usual socket may be found first
				if got.host != "unix:///var/run/docker.sock" && got.host != "unix://"+filepath.Join(runtimeDir, "docker.sock") {
					t.Errorf("found %+v", got)
				}
			case !test.fail && got.host != test.want:
				t.Errorf("found %+v, want %s", got, test.want)
			}
		})
	}
	setEnvironment(t, contextHome, nil)
	got, err := discover("")
	if err != nil || !strings.HasSuffix(got.ca, "ca.pem") || got.cert != "" {
		t.Errorf("found %+v, %v; want the context's certificate authority", got, err)
	}
}

func TestUsualSocketsInOrder(t *testing.T) {
	dir, err := os.MkdirTemp("", "wfs") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	setEnvironment(t, dir, map[string]string{"XDG_RUNTIME_DIR": filepath.Join(dir, "run")})
	paths := socketPaths()
	want := []string{
		"/var/run/docker.sock", dir + "/run/docker.sock", dir + "/.docker/run/docker.sock", dir + "/.orbstack/run/docker.sock",
		dir + "/.colima/default/docker.sock", dir + "/.rd/docker.sock", dir + "/.docker/desktop/docker.sock",
	}
	if !slices.Equal(paths, want) {
		t.Fatalf("the usual sockets are %q, want %q", paths, want)
	}
	paths = paths[1:] // the first path can be a real socket of this host
	// A socket file without a listener is preferred to a missing one, and a socket with a listener
	// to both.
	if got, _ := fromSockets(paths); got.host != "unix://"+paths[0] {
		t.Errorf("without any socket, the host is %s", got.host)
	}
	for i, path := range slices.Backward(paths) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := fromSockets(paths); got.host != "unix://"+path {
			t.Errorf("with a listener at %s, the host is %s", path, got.host)
		}
		if i%2 == 0 { // leave a dead socket file at every other path
			listener.(*net.UnixListener).SetUnlinkOnClose(false)
			_ = listener.Close()
			continue
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
	if got, _ := fromSockets(paths); got.host != "unix://"+paths[1] {
		t.Errorf("with a dead socket before a live one, the host is %s", got.host)
	}
	if got, _ := fromSockets([]string{paths[1] + "x", paths[0]}); got.host != "unix://"+paths[0] {
		t.Errorf("with only a dead socket, the host is %s", got.host)
	}
}

func TestCheckWithoutEngine(t *testing.T) {
	dir, err := os.MkdirTemp("", "wfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	silent := filepath.Join(dir, "silent.sock")
	listener, err := net.Listen("unix", silent) // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for host, want := range map[string]string{
		"unix://" + filepath.Join(dir, "none.sock"): "deploy_target process",
		"unix://" + silent:                          "did not respond within",
		"tcp://127.0.0.1:9":                         "no Docker Engine responds",
	} {
		e := newExecutor(t, Options{Config: Config{Host: host}})
		err := e.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Check of %s: %v, want %q", host, err, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestExplainPermission(t *testing.T) {
	err := explain("unix:///s", fmt.Errorf("dialling: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}))
	if !strings.Contains(err.Error(), "root-equivalent") {
		t.Errorf("a socket without permission: %v", err)
	}
}

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

type address struct {
	host   string
	origin string
	// ca, cert and key are TLS files; empty without TLS.
	ca, cert, key string
}

func (a address) options() []client.Opt {
	opts := []client.Opt{}
	if a.cert != "" || a.ca != "" {
		opts = append(opts, client.WithTLSClientConfig(a.ca, a.cert, a.key))
	}
	return append(opts, client.WithHost(a.host))
}

// discover finds the engine as the docker command does. On macOS it also tries the sockets of
// the various distributions when no context names one.
func discover(o Options) (address, error) {
	getenv, home := o.environment()
	switch {
	case o.Host != "":
		return fromHost(o.Host, "the configuration", getenv, home)
	case getenv("DOCKER_HOST") != "":
		return fromHost(getenv("DOCKER_HOST"), "DOCKER_HOST", getenv, home)
	}
	if a, ok, err := fromContext(getenv, home); ok || err != nil {
		return a, err
	}
	return fromSockets(socketPaths(getenv, home))
}

func (o Options) environment() (getenv func(name string) string, home string) {
	getenv, home = o.Getenv, o.Home
	if getenv == nil {
		getenv = os.Getenv
	}
	if home == "" {
		home, _ = os.UserHomeDir() // a service may have none
	}
	return getenv, home
}

func fromHost(host, origin string, getenv func(string) string, home string) (address, error) {
	a := address{host: host, origin: origin}
	scheme, _, ok := strings.Cut(host, "://")
	switch {
	case !ok:
		return a, fmt.Errorf("%s says the Docker Engine is at %q: use a form like unix:///var/run/docker.sock or tcp://host:2376", origin, host)
	case scheme == "ssh":
		return a, fmt.Errorf("%s says the Docker Engine is at %s: SSH is not supported, forward the engine's socket (ssh -L) and name that", origin, host)
	}
	dir, verify := getenv("DOCKER_CERT_PATH"), getenv("DOCKER_TLS_VERIFY") != ""
	if dir == "" && verify { // as the docker command does
		dir = configDir(getenv, home)
	}
	switch {
	case scheme == "unix" || dir == "" && !verify:
	case !verify:
		return a, errors.New("DOCKER_CERT_PATH is set without DOCKER_TLS_VERIFY: the agent talks to an engine only if it can verify it, set DOCKER_TLS_VERIFY=1")
	case dir == "":
		return a, errors.New("DOCKER_TLS_VERIFY is set, and there is neither DOCKER_CERT_PATH nor a home directory to find the certificates in")
	default:
		a.ca, a.cert, a.key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	}
	return a, nil
}

func configDir(getenv func(string) string, home string) string {
	dir := getenv("DOCKER_CONFIG")
	if dir == "" && home != "" {
		dir = filepath.Join(home, ".docker")
	}
	return dir
}

func fromContext(getenv func(string) string, home string) (address, bool, error) {
	dir := configDir(getenv, home)
	if dir == "" {
		return address{}, false, nil
	}
	name := getenv("DOCKER_CONTEXT")
	if name == "" {
		var config struct {
			CurrentContext string `json:"currentContext"`
		}
		if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return address{}, false, fmt.Errorf("looking for the Docker Engine: %w", err)
		}
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return address{}, false, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := readJSON(filepath.Join(dir, "contexts", "meta", id, "meta.json"), &meta); err != nil {
		return address{}, false, fmt.Errorf("looking for the Docker Engine of docker context %q: %w", name, err)
	}
	endpoint := meta.Endpoints["docker"]
	origin := fmt.Sprintf("docker context %q", name)
	if endpoint.SkipTLSVerify {
		return address{}, false, fmt.Errorf("%s does not verify the engine's certificate, which the agent insists on", origin)
	}
	a, err := fromHost(endpoint.Host, origin, func(string) string { return "" }, "")
	if err != nil {
		return a, false, err
	}
	for file, field := range map[string]*string{"ca.pem": &a.ca, "cert.pem": &a.cert, "key.pem": &a.key} {
		path := filepath.Join(dir, "contexts", "tls", id, "docker", file)
		if _, err := os.Stat(path); err == nil {
			*field = path
		}
	}
	return a, true, nil
}

// socketPaths returns the usual sockets: Docker Engine and its rootless form, then Docker
// Desktop, OrbStack, Colima, Rancher Desktop, and Docker Desktop on Linux.
func socketPaths(getenv func(string) string, home string) []string {
	paths := []string{"/var/run/docker.sock"}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		paths = append(paths, filepath.Join(dir, "docker.sock"))
	}
	if home != "" {
		for _, rel := range []string{".docker/run/docker.sock", ".orbstack/run/docker.sock", ".colima/default/docker.sock", ".rd/docker.sock", ".docker/desktop/docker.sock"} {
			paths = append(paths, filepath.Join(home, rel))
		}
	}
	return paths
}

// fromSockets prefers a socket that accepts a connection, then one that exists.
func fromSockets(paths []string) (address, error) {
	best, found := paths[0], false
	for _, path := range paths {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "unix", path)
		if err == nil {
			_ = conn.Close()
			return address{host: "unix://" + path, origin: "its usual place"}, nil
		}
		if !found && !errors.Is(err, fs.ErrNotExist) {
			best, found = path, true
		}
	}
	return address{host: "unix://" + best, origin: "its usual place"}, nil
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

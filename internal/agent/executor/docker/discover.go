package docker

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

type address struct {
	host   string
	origin string
	// ca, cert and key are the paths of the TLS files, or empty without TLS.
	ca, cert, key string
}

func (a address) options() []client.Opt {
	var opts []client.Opt
	if a.cert != "" || a.ca != "" {
		opts = append(opts, client.WithTLSClientConfig(a.ca, a.cert, a.key))
	}
	return append(opts, client.WithHost(a.host))
}

// discover returns the engine's address in the same way as the docker command: from host, from
// DOCKER_HOST, or from the docker context. If none of them is set, it tries the usual sockets.
func discover(host string) (address, error) {
	origin := "the configuration"
	if host == "" {
		host, origin = os.Getenv("DOCKER_HOST"), "DOCKER_HOST"
	}
	if host != "" {
		return fromHost(host, origin, os.Getenv("DOCKER_CERT_PATH"), os.Getenv("DOCKER_TLS_VERIFY") != "")
	}
	if a, ok, err := fromContext(); ok || err != nil {
		return a, err
	}
	return fromSockets(socketPaths())
}

// homeDir returns the home directory of the agent's user, or "" if it is unknown, as in some
// services.
func homeDir() string {
	home, _ := os.UserHomeDir()
	return home
}

// fromHost returns the address of the engine at host. dir contains the TLS files.
func fromHost(host, origin, dir string, verify bool) (address, error) {
	a := address{host: host, origin: origin}
	scheme, _, ok := strings.Cut(host, "://")
	switch {
	case !ok:
		return a, fmt.Errorf("%s names the Docker Engine %q: use a form like unix:///var/run/docker.sock or tcp://host:2376", origin, host)
	case scheme == "ssh":
		return a, fmt.Errorf("%s names the Docker Engine %s: SSH is not supported; forward the engine's socket (ssh -L) and name the forwarded socket", origin, host)
	}
	if dir == "" && verify { // the docker command also uses this default
		dir = configDir()
	}
	switch {
	case scheme == "unix" || dir == "" && !verify:
	case !verify:
		return a, errors.New("DOCKER_CERT_PATH is set without DOCKER_TLS_VERIFY: the agent must verify the engine's certificate; set DOCKER_TLS_VERIFY=1")
	case dir == "":
		return a, errors.New("DOCKER_TLS_VERIFY is set, but the certificates cannot be found: neither DOCKER_CERT_PATH nor a home directory is set")
	default:
		a.ca, a.cert, a.key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	}
	return a, nil
}

func configDir() string {
	dir := os.Getenv("DOCKER_CONFIG")
	if home := homeDir(); dir == "" && home != "" {
		dir = filepath.Join(home, ".docker")
	}
	return dir
}

func fromContext() (address, bool, error) {
	dir := configDir()
	if dir == "" {
		return address{}, false, nil
	}
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		var config struct {
			CurrentContext string `json:"currentContext"`
		}
		if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return address{}, false, fmt.Errorf("finding the Docker Engine: %w", err)
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
		return address{}, false, fmt.Errorf("finding the Docker Engine of docker context %q: %w", name, err)
	}
	endpoint := meta.Endpoints["docker"]
	origin := fmt.Sprintf("docker context %q", name)
	if endpoint.SkipTLSVerify {
		return address{}, false, fmt.Errorf("%s skips the verification of the engine's certificate, which the agent requires", origin)
	}
	a, err := fromHost(endpoint.Host, origin, "", false)
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

// socketPaths returns the paths of the usual sockets, in this order: Docker Engine and its rootless
// mode, Docker Desktop, OrbStack, Colima, Rancher Desktop, and Docker Desktop on Linux.
func socketPaths() []string {
	paths := []string{"/var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		paths = append(paths, filepath.Join(dir, "docker.sock"))
	}
	if home := homeDir(); home != "" {
		for _, rel := range []string{".docker/run/docker.sock", ".orbstack/run/docker.sock", ".colima/default/docker.sock", ".rd/docker.sock", ".docker/desktop/docker.sock"} {
			paths = append(paths, filepath.Join(home, rel))
		}
	}
	return paths
}

// fromSockets returns the first socket that accepts a connection. If none does, it returns a socket
// that exists, or the first path.
func fromSockets(paths []string) (address, error) {
	const origin = "its usual socket"
	best, found := paths[0], false
	for _, path := range paths {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "unix", path)
		if err == nil {
			_ = conn.Close()
			return address{host: "unix://" + path, origin: origin}, nil
		}
		if !found && !errors.Is(err, fs.ErrNotExist) {
			best, found = path, true
		}
	}
	return address{host: "unix://" + best, origin: origin}, nil
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

// explain adds the cause and the remedy for the operator to err.
func explain(host string, err error) error {
	var timeout net.Error
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	text := err.Error()
	name := "the agent's user"
	if u, uErr := user.Current(); uErr == nil {
		name = u.Username
	}
	switch {
	case errors.As(err, &verification), strings.Contains(text, "x509: "):
		return fmt.Errorf("the certificate of the Docker Engine at %s cannot be verified (%s): check that ca.pem in DOCKER_CERT_PATH, or in the docker context, is the engine's certificate authority", host, lastPart(text))
	case errors.As(err, &alert), strings.Contains(text, "remote error: tls: "):
		return fmt.Errorf("the Docker Engine at %s does not accept the agent's certificate (%s): check that cert.pem and key.pem in DOCKER_CERT_PATH, or in the docker context, were issued for this engine", host, lastPart(text))
	case strings.Contains(text, "HTTP request to an HTTPS server"), strings.Contains(text, "without TLS"):
		return fmt.Errorf("the Docker Engine at %s requires TLS: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH to the directory of ca.pem, cert.pem and key.pem", host)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s is not permitted to use the Docker Engine at %s: add the user to the group docker (which is root-equivalent), or run a rootless engine and set DOCKER_HOST to its socket", name, host)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the Docker Engine at %s did not respond within %s: check whether it is overloaded or hung", host, pingTime)
	case client.IsErrConnectionFailed(err), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no Docker Engine responds at %s: start it, set DOCKER_HOST to its address, or run jobs as processes without isolation (deploy_target process)", host)
	}
	return fmt.Errorf("calling the Docker Engine at %s: %w", host, err)
}

func lastPart(text string) string {
	for _, mark := range []string{"x509: ", "tls: "} {
		if _, after, ok := strings.Cut(text, mark); ok {
			return engineText(after)
		}
	}
	return engineText(text)
}

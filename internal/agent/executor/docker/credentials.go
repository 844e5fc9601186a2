package docker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"

	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

const (
	hubKey = "https://index.docker.io/v1/"
	// helperPatience bounds a credential helper, which may ask a keychain or a cloud.
	helperPatience = 30 * time.Second
	maxHelperWords = 200
	helperHasNone  = "credentials not found"
	// tokenUser is the user name that marks a helper's secret as a token.
	tokenUser = "<token>"
)

type registryConfig struct {
	Auths       map[string]registryAuth `json:"auths"`
	CredHelpers map[string]string       `json:"credHelpers"`
	CredsStore  string                  `json:"credsStore"`
}

// registryAuth is an entry of auths. An entry without secrets leaves them to a helper.
type registryAuth struct {
	Auth          string `json:"auth"` // user:password in base64
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

type login struct {
	encoded string // for the engine; "" = anonymous
	origin  string // for messages, as in "with …"
}

// logIn returns the job's own credentials for the registry, else those of the docker
// configuration and its credential helpers on the agent's host.
func (e *Executor) logIn(ctx context.Context, ref name.Reference, own *workflow.ImageCredentials) (login, error) {
	key := ref.Context().RegistryStr()
	if key == name.DefaultRegistry {
		key = hubKey
	}
	if own != nil && (own.Username != "" || own.Password != "") {
		return encodeLogin(registryAuth{Username: own.Username, Password: own.Password}, key, "the job's registry credentials")
	}
	getenv, home := e.opts.environment()
	config, err := readRegistryConfig(getenv, home)
	if err != nil {
		return login{}, err
	}
	for _, wanted := range []string{ref.Context().Name(), key} {
		helper := config.CredHelpers[wanted]
		if helper == "" && wanted == key {
			helper = config.CredsStore
		}
		if helper != "" {
			auth, err := e.askHelper(ctx, helper, wanted)
			if err != nil {
				return login{}, err
			}
			if auth != (registryAuth{}) {
				return encodeLogin(auth, key, "the credentials that docker-credential-"+helper+" has on its host")
			}
		}
		if auth := config.find(wanted); auth != (registryAuth{}) {
			return encodeLogin(auth, key, "the credentials of the docker configuration on its host")
		}
	}
	return login{origin: "no credentials"}, nil
}

func encodeLogin(auth registryAuth, server, origin string) (login, error) {
	config := registry.AuthConfig{
		ServerAddress: server, Username: auth.Username, Password: auth.Password,
		IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
	}
	if auth.Auth != "" {
		plain, err := base64.StdEncoding.DecodeString(auth.Auth)
		user, password, ok := strings.Cut(strings.TrimRight(string(plain), "\x00"), ":")
		if err != nil || !ok {
			return login{}, fmt.Errorf("%s: auth is not user:password in base64", origin)
		}
		config.Username, config.Password = user, password
	}
	encoded, err := authconfig.Encode(config)
	if err != nil {
		return login{}, errors.New("the credentials cannot be encoded") // the cause could quote them
	}
	return login{encoded: encoded, origin: origin}, nil
}

// readRegistryConfig reads the docker command's configuration, else podman's, of the same form.
func readRegistryConfig(getenv func(string) string, home string) (registryConfig, error) {
	var paths []string
	add := func(base string, rel ...string) {
		if base != "" {
			paths = append(paths, filepath.Join(append([]string{base}, rel...)...))
		}
	}
	add(configDir(getenv, home), "config.json")
	add(getenv("REGISTRY_AUTH_FILE"))
	add(getenv("XDG_RUNTIME_DIR"), "containers", "auth.json")
	add(home, ".config", "containers", "auth.json")
	for _, path := range paths {
		var config registryConfig
		err := readJSON(path, &config)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return config, err
	}
	return registryConfig{}, nil
}

func (c registryConfig) find(key string) registryAuth {
	if auth, ok := c.Auths[key]; ok {
		return auth
	}
	for written, auth := range c.Auths {
		host := strings.TrimPrefix(strings.TrimPrefix(written, "https://"), "http://")
		if host != written {
			host, _, _ = strings.Cut(host, "/")
		}
		if strings.TrimSuffix(host, "/") == key {
			return auth
		}
	}
	return registryAuth{}
}

// askHelper runs a credential helper. The zero value means that it has nothing for the
// registry. A failed helper's output goes to the agent's log only: the deployment's log has
// other readers.
func (e *Executor) askHelper(ctx context.Context, helper, server string) (registryAuth, error) {
	program := "docker-credential-" + helper
	if strings.ContainsAny(helper, `/\`) {
		return registryAuth{}, fmt.Errorf("%q is not the name of a credential helper", helper)
	}
	ctx, cancel := context.WithTimeout(ctx, helperPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "get")
	cmd.Env = withoutAgentSettings(os.Environ())
	cmd.Stdin = strings.NewReader(server)
	cmd.WaitDelay = time.Second // for processes that it started
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registryAuth{}, fmt.Errorf("%s did not answer within %s", program, helperPatience)
	case ctx.Err() != nil:
		return registryAuth{}, ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return registryAuth{}, fmt.Errorf("%s is not on the agent's PATH, and the docker configuration names it", program)
	case err != nil && strings.Contains(out.String(), helperHasNone):
		return registryAuth{}, nil
	case err != nil:
		e.opts.Log.WithError(err).WithField("helper", program).Warn("A credential helper failed" + complaint(out.String()))
		return registryAuth{}, fmt.Errorf("%s failed (%w); the agent's log has more", program, err)
	}
	var answer struct{ Username, Secret string }
	if json.Unmarshal(out.Bytes(), &answer) != nil {
		return registryAuth{}, fmt.Errorf("%s answered something that is not JSON", program)
	}
	if answer.Username == tokenUser {
		return registryAuth{IdentityToken: answer.Secret}, nil
	}
	return registryAuth{Username: answer.Username, Password: answer.Secret}, nil
}

// complaint returns a failed helper's output, unless it looks like credentials.
func complaint(said string) string {
	said = termtext.OneLine(said, maxHelperWords)
	if said == "" || strings.ContainsAny(said, "{}") {
		return ""
	}
	return ": " + said
}

// withoutAgentSettings removes the agent's own settings, including its token, from env.
func withoutAgentSettings(env []string) []string {
	var out []string
	for _, variable := range env {
		if !strings.HasPrefix(variable, "PULUMI_AGENT_") {
			out = append(out, variable)
		}
	}
	return out
}

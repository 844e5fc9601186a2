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
	"slices"
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
	// helperTime bounds the run time of a credential helper, which may query a keychain or a cloud
	// service.
	helperTime      = 30 * time.Second
	maxHelperOutput = 200
	helperHasNone   = "credentials not found"
	// tokenUser is the user name that marks a credential helper's secret as a token.
	tokenUser = "<token>"
)

type registryConfig struct {
	Auths       map[string]registryAuth `json:"auths"`
	CredHelpers map[string]string       `json:"credHelpers"`
	CredsStore  string                  `json:"credsStore"`
}

// registryAuth is an entry of the auths object. If it has no secrets, a credential helper provides
// them.
type registryAuth struct {
	Auth          string `json:"auth"` // user:password in base64
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

type login struct {
	encoded string // for the engine; "" means anonymous
	origin  string // the source of the credentials, which follows "with" in messages
}

// logIn returns the job's own credentials for the registry. If the job has none, it reads the
// docker configuration on the agent's host, which can name credential helpers.
func (e *Executor) logIn(ctx context.Context, ref name.Reference, own *workflow.ImageCredentials) (login, error) {
	key := ref.Context().RegistryStr()
	if key == name.DefaultRegistry {
		key = hubKey
	}
	if own != nil && (own.Username != "" || own.Password != "") {
		return encodeLogin(registryAuth{Username: own.Username, Password: own.Password}, key, "the job's registry credentials")
	}
	config, err := readRegistryConfig()
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
		return login{}, errors.New("the credentials cannot be encoded") // the cause could quote the credentials
	}
	return login{encoded: encoded, origin: origin}, nil
}

// readRegistryConfig reads the docker command's configuration or, if that file is missing,
// podman's. Both have the same format.
func readRegistryConfig() (registryConfig, error) {
	for _, path := range [][2]string{
		{configDir(), "config.json"},
		{os.Getenv("REGISTRY_AUTH_FILE")},
		{os.Getenv("XDG_RUNTIME_DIR"), "containers/auth.json"},
		{homeDir(), ".config/containers/auth.json"},
	} {
		if path[0] == "" {
			continue
		}
		var config registryConfig
		if err := readJSON(filepath.Join(path[:]...), &config); !errors.Is(err, fs.ErrNotExist) {
			return config, err
		}
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

// askHelper runs a credential helper and returns the credentials for the registry, or the zero
// value if the helper has none. A failed helper's output goes only to the agent's log, because
// other users can read the deployment's log.
func (e *Executor) askHelper(ctx context.Context, helper, server string) (registryAuth, error) {
	program := "docker-credential-" + helper
	if strings.ContainsAny(helper, `/\`) {
		return registryAuth{}, fmt.Errorf("%q is not the name of a credential helper", helper)
	}
	ctx, cancel := context.WithTimeout(ctx, helperTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "get")
	// The helper must not receive the agent's settings, which include its token.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PULUMI_AGENT_") })
	cmd.Stdin = strings.NewReader(server)
	cmd.WaitDelay = time.Second // bounds the wait for descendants that hold the output open
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return registryAuth{}, fmt.Errorf("%s did not respond within %s", program, helperTime)
	case ctx.Err() != nil:
		return registryAuth{}, ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return registryAuth{}, fmt.Errorf("the docker configuration names %s, which is not in the agent's PATH", program)
	case err != nil && strings.Contains(out.String(), helperHasNone):
		return registryAuth{}, nil
	case err != nil:
		e.opts.Log.WithError(err).WithField("helper", program).Warn("running a credential helper failed" + complaint(out.String()))
		return registryAuth{}, fmt.Errorf("%s failed (%w); see the agent's log", program, err)
	}
	var answer struct{ Username, Secret string }
	if json.Unmarshal(out.Bytes(), &answer) != nil {
		return registryAuth{}, fmt.Errorf("the output of %s is not JSON", program)
	}
	if answer.Username == tokenUser {
		return registryAuth{IdentityToken: answer.Secret}, nil
	}
	return registryAuth{Username: answer.Username, Password: answer.Secret}, nil
}

// complaint returns a failed helper's output for an error message, or "" if the output resembles
// credentials.
func complaint(output string) string {
	output = termtext.OneLine(output, maxHelperOutput)
	if output == "" || strings.ContainsAny(output, "{}") {
		return ""
	}
	return ": " + output
}

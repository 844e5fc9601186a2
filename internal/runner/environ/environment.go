// Package environ builds the environment of a job's steps: variables, proxies, certificate
// authorities and secrets.
package environ

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/runner/credentials"
	"workflowagent/internal/workflow"
)

const (
	envAccessToken = "PULUMI_ACCESS_TOKEN"
	envBackendURL  = "PULUMI_BACKEND_URL"
	envServiceURL  = "PULUMI_SERVICE_URL"
	envPulumiEnv   = "PULUMI_ENV"
	envBatchPeriod = "PULUMI_JOURNALING_BATCH_PERIOD"
)

// batchPeriod is the time for which the CLI collects journal entries before it sends them, in
// milliseconds. Each step of an update waits for its entry. With the CLI's default of 50, 1 000
// resources on two cores take 14.2 s, and with 2 they take 2.2 s.
const batchPeriod = 2

const (
	filePulumiEnv  = protocol.FileEnv
	fileCA         = "ca-certificates.pem"
	dirHome        = "home"
	dirCredentials = "pulumi-credentials"
)

const fallbackPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment is the environment of the job's steps. Later layers override earlier ones:
//
//  1. the environment of the image, or the one that the executor passes on, with the agent's
//     proxies where it has none
//  2. the cloud credentials, of which AWS_CONFIG_FILE overrides all layers but the last
//  3. the variables of the environments that the settings name; see [Environment.Share]
//  4. the definition's environment, without reserved names
//  5. the runner's variables, because a job must know which deployment it is
//  6. the agent's forwarded values, because the administrator's settings override the definition
//  7. the variables that earlier steps have written to the file PULUMI_ENV
type Environment struct {
	vars       map[string]string
	given      map[string]bool   // names in the definition's environment or the forwarded values
	shared     map[string]string // the variables of environments that are used
	secretEnv  []string
	pulumiEnv  string // path of the file named by PULUMI_ENV
	bundle     string // path of the file with the agent's certificate authorities, or ""
	pulumiDir  string // directory of the pulumi that steps run, or ""
	fixed      *fixedPath
	deployment bool     // the job is a deployment, so identity names are reserved
	Notices    []string // lines for the log of the first step
}

// loaderNames make programs load or run other code. If the settings could set them, a value could
// hijack a step that handles credentials. Pre-run commands can set them through PULUMI_ENV.
var (
	loaderNames = []string{
		"BASH_ENV", "SHELLOPTS", "BASHOPTS",
		"GIT_ASKPASS", "SSH_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_PROXY_COMMAND", "GIT_TEMPLATE_DIR",
	}
	loaderPrefixes = []string{"LD_", "DYLD_", "GIT_CONFIG", "BASH_FUNC_"}
)

// identityNames identify a deployment. Only the runner sets them.
var identityNames = []string{
	envBackendURL, envServiceURL, envPulumiEnv, credentials.EnvToken,
	"PULUMI_CI_SYSTEM", "PULUMI_CI_BUILD_ID", "PULUMI_CI_BUILD_NUMBER",
	"PULUMI_CI_ORGANIZATION", "PULUMI_CI_PROJECT", "PULUMI_CI_STACK", "PULUMI_CI_OPERATION",
}

// ownPrefixes are the prefixes of the runner's and the agent's own variables, which are not passed
// to steps.
var ownPrefixes = []string{"WORKFLOW_RUNNER_", "PULUMI_AGENT_"}

// reserved reports whether neither settings nor environments can set a variable.
func reserved(name string) bool {
	return hasAnyPrefix(name, ownPrefixes) || slices.Contains(loaderNames, name) || hasAnyPrefix(name, loaderPrefixes)
}

func hasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// New builds the environment and writes the files that it refers to. base contains the variables of
// the job's container or host, in the form NAME=value. fixed is [protocol.FilePulumiEnv], except in tests.
func New(jobDir, fixed string, base []string, launch *protocol.Launch, definition *workflow.JobDefinition) (*Environment, error) {
	e := &Environment{
		vars:       map[string]string{},
		given:      map[string]bool{},
		secretEnv:  definition.SecretEnv,
		pulumiEnv:  pulumiEnvFile(jobDir, fixed),
		pulumiDir:  launch.PulumiDir,
		deployment: definition.Deployment != nil,
	}
	e.fixed = newFixedPath(fixed, e.pulumiEnv)
	for _, entry := range base {
		name, value, ok := strings.Cut(entry, "=")
		if ok && name != "" && !hasAnyPrefix(name, ownPrefixes) {
			e.vars[name] = value
		}
	}
	own, err := e.own(launch, definition)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(definition.Env)) {
		value := definition.Env[name]
		switch {
		case !validName(name) || strings.ContainsRune(value, 0):
			e.Notices = append(e.Notices, fmt.Sprintf("warning: ignoring the environment variable %q, which cannot be set", name))
		case reserved(name):
			e.Notices = append(e.Notices, fmt.Sprintf("warning: ignoring the environment variable %s, which is reserved", name))
		case own[name] != "":
			// The server also sets these names, to the same values.
			if e.deployment && strings.TrimRight(own[name], "/") != strings.TrimRight(value, "/") {
				e.Notices = append(e.Notices, fmt.Sprintf("warning: ignoring the value of the environment variable %s, which the deployment sets itself", name))
			}
		default:
			given[name] = value
		}
	}
	e.overlay(given)
	maps.Copy(e.vars, own)
	if err := e.fallbacks(jobDir, launch); err != nil {
		return nil, err
	}
	forwarded := maps.Clone(launch.ForwardedEnv)
	maps.DeleteFunc(forwarded, func(name, _ string) bool { return !validName(name) || hasAnyPrefix(name, ownPrefixes) })
	e.overlay(forwarded)
	if strings.HasPrefix(forwarded["DOCKER_HOST"], "tcp://") {
		e.Notices = append(e.Notices, engineNotice)
	}
	for _, layer := range []map[string]string{given, forwarded} {
		for name := range layer {
			e.given[name] = true
		}
	}
	e.completeProxy()
	return e, nil
}

// engineNotice is the warning about an engine to which a socket's permissions do not apply.
const engineNotice = "warning: the agent passes DOCKER_HOST with an engine on the network (tcp://) to this job: " +
	"code that reaches the engine can be root on the engine's host"

func (e *Environment) own(launch *protocol.Launch, definition *workflow.JobDefinition) (map[string]string, error) {
	own := map[string]string{envPulumiEnv: e.pulumiEnv}
	if err := os.WriteFile(e.pulumiEnv, nil, 0o600); err != nil {
		return nil, fmt.Errorf("creating the file for PULUMI_ENV: %w", err)
	}
	if d := definition.Deployment; d != nil {
		own[envBackendURL] = d.BackendURL
		own[envServiceURL] = strings.TrimRight(d.BackendURL, "/") + "/api"
		own["PULUMI_CI_SYSTEM"] = "Pulumi Deployments"
		own["PULUMI_CI_BUILD_ID"] = d.ID
		own["PULUMI_CI_BUILD_NUMBER"] = strconv.FormatInt(d.Version, 10)
		own["PULUMI_CI_ORGANIZATION"] = d.Organization
		own["PULUMI_CI_PROJECT"] = d.Project
		own["PULUMI_CI_STACK"] = d.Stack
		own["PULUMI_CI_OPERATION"] = string(d.Operation)
	}
	if launch.OIDCToken != "" {
		own[credentials.EnvToken] = launch.OIDCToken
	}
	return own, nil
}

// fallbacks sets variables that no layer sets: writable directories, quiet defaults and certificate
// authorities.
func (e *Environment) fallbacks(jobDir string, launch *protocol.Launch) error {
	fill := func(name, value string) {
		if e.vars[name] == "" {
			e.vars[name] = value
		}
	}
	fill("PATH", fallbackPath)
	fill("LANG", "C.UTF-8")
	fill("PULUMI_SKIP_UPDATE_CHECK", "true")
	fill(envBatchPeriod, strconv.Itoa(batchPeriod))
	// The CLI writes the token of each login to a file. The file must be removed with the job and
	// be unreadable to other jobs of the same user.
	fill("PULUMI_CREDENTIALS_PATH", filepath.Join(jobDir, dirCredentials))
	if home := e.vars["HOME"]; home == "" || unix.Access(home, unix.W_OK) != nil {
		e.vars["HOME"] = filepath.Join(jobDir, dirHome)
		if err := os.MkdirAll(e.vars["HOME"], 0o700); err != nil {
			return fmt.Errorf("creating a home directory for the job: %w", err)
		}
	}
	if launch.CACertPEM == "" {
		return nil
	}
	bundle := filepath.Join(jobDir, fileCA)
	if err := writeBundle(bundle, launch.CACertPEM, e.vars["SSL_CERT_FILE"], e.vars["SSL_CERT_DIR"]); err != nil {
		return err
	}
	e.bundle = bundle
	e.vars["SSL_CERT_FILE"] = bundle // the bundle includes the authorities of the previous one
	for _, name := range bundleNames {
		fill(name, bundle)
	}
	return nil
}

// preferPulumi makes programs find the agent's pulumi before all others.
func (e *Environment) preferPulumi(vars map[string]string) {
	if e.pulumiDir != "" {
		vars["PATH"] = e.pulumiDir + string(os.PathListSeparator) + vars["PATH"]
	}
}

// Base returns the environment of the steps without cloud credentials.
func (e *Environment) Base() credentials.Env {
	vars := maps.Clone(e.vars)
	e.preferPulumi(vars)
	return credentials.Env{Vars: vars, Given: func(name string) bool { return e.given[name] }}
}

// ForStep returns the environment of the next step, with the given cloud credentials, the notices
// for the step's log, and the new secrets in the environment.
func (e *Environment) ForStep(cloud map[string]string) (env, notices []string, secrets []redact.Secret) {
	vars := maps.Clone(e.vars)
	for name, value := range cloud {
		if _, shared := e.shared[name]; !shared && !e.given[name] || name == credentials.EnvAWSConfig {
			vars[name] = value
		}
	}
	loaded, notices := e.load()
	for name, value := range loaded {
		vars[name] = value
		if slices.Contains(e.secretEnv, name) || looksSecret(name) {
			secrets = append(secrets, redact.Secret{Name: name, Value: value})
		}
	}
	e.preferPulumi(vars)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env, notices, secrets
}

func validName(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00")
}

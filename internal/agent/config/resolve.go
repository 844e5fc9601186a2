package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"workflowagent/internal/protocol"
	"workflowagent/internal/settings"
)

// resolve fills in the defaults that depend on the machine, the user or other keys.
func (c *Config) resolve(o LoadOptions, env map[string]string) {
	c.meta.tempDir = o.TempDir
	c.meta.uid = o.UID
	c.resolveWorkingDirectory(o)
	c.HealthThreshold = cmp.Or(c.HealthThreshold, 2*max(c.Agent.PollingInterval, c.Agent.JobStatusLoopInterval))
	if c.HTTPServerAddress == "" {
		c.HTTPServerAddress = "127.0.0.1"
		if env["KUBERNETES_SERVICE_HOST"] != "" {
			// Probes and scrapers connect from outside the pod.
			c.HTTPServerAddress = anyAddress
		}
	}
	if c.Agent.SingleRun && c.Agent.MaxConcurrentJobs != 1 {
		if !c.Source("max_concurrent_jobs").IsDefault() {
			c.warn("max_concurrent_jobs has no effect, because single_run is true")
		}
		c.Agent.MaxConcurrentJobs = 1
	}
	c.resolveForwarded(env)
	c.resolveProxy(env)
	if c.StateDirectory == "" {
		c.resolveStateDirectory(o, env)
	}
}

// resolveWorkingDirectory sets working_directory to the binary's directory if the key is empty or
// contains the placeholder of the published sample files. If the key is the path of a file, it uses
// that file's directory.
func (c *Config) resolveWorkingDirectory(o LoadOptions) {
	binaryDir := ""
	if o.Binary != "" {
		binaryDir = filepath.Dir(o.Binary)
	}
	dir := c.WorkingDirectory
	switch {
	case dir == "":
		c.WorkingDirectory = binaryDir
	case strings.HasPrefix(filepath.Base(dir), "<location of "):
		c.WorkingDirectory = binaryDir
		c.meta.sources["working_directory"] = settings.Source{}
	default:
		info, err := os.Stat(dir)
		if err != nil || !info.Mode().IsRegular() {
			return
		}
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			c.WorkingDirectory = filepath.Dir(resolved)
		}
	}
}

func (c *Config) adviseOnIdentity() {
	if c.UsesOIDC() && !c.Token.IsZero() {
		c.warn("oidc_token_file is set, so token is not used: remove one of the two")
	}
	if strings.ContainsFunc(c.Token.Reveal(), func(r rune) bool { return r > unicode.MaxASCII }) {
		c.warn("token contains non-ASCII characters, as a token that was shortened for display does: check that it is complete")
	}
	if u, err := url.Parse(c.ServiceURL); err == nil && u.Scheme == "http" && !protocol.IsLoopback(u.Host) {
		c.warn("service_url begins with http, so the token and the secrets of jobs cross the network in plain text: use https if the server has it")
	}
}

func (c *Config) adviseOnKubernetes() {
	if c.DeployTarget == TargetKubernetes {
		if c.Pods.Template != "" && c.Pods.TemplateFile != "" {
			c.warn("%sPOD_TEMPLATE is set, so pod_template_file is not used: remove one of the two", envPrefix)
		}
		return
	}
	for _, f := range append(kubernetesFields(c), podFields(c)...) {
		if source := c.Source(f.Key); !source.IsDefault() {
			c.warn("%s: %s has no effect, because deploy_target is %s", source, f.Key, c.DeployTarget)
		}
	}
}

func (c *Config) resolveForwarded(env map[string]string) {
	const dockerHost = "DOCKER_HOST"
	for _, name := range c.EnvForwardAllowlist {
		value, ok := env[name]
		switch {
		case name == dockerHost:
			continue // added at the end in all cases
		case !ok:
			c.warn("%s is in env_forward_allowlist but not set on this host, so jobs do not get it", name)
			continue
		case value != "" && len(value) < 6:
			c.warn("the value of %s is shorter than 6 characters and cannot be masked in logs", name)
		}
		c.meta.forwarded = append(c.meta.forwarded, ForwardedVar{Name: name, Value: settings.NewSecret(value)})
	}
	if value := env[dockerHost]; value != "" {
		c.meta.forwarded = append(c.meta.forwarded, ForwardedVar{Name: dockerHost, Value: settings.NewSecret(value)})
		if strings.HasPrefix(value, "tcp://") {
			c.warn("DOCKER_HOST names an engine on the network (tcp://), and all jobs receive it: the code of any job that reaches the engine " +
				"can be root on the engine's host; use the engine's socket (unix://)")
		}
	}
}

// resolveStateDirectory selects the service manager's directory if it is set, otherwise that of the
// machine's service with the same file and user, otherwise the user's directory, otherwise a private
// temporary directory.
func (c *Config) resolveStateDirectory(o LoadOptions, env map[string]string) {
	const name = "workflow-agent"
	// systemd separates multiple directories with colons.
	given, _, _ := strings.Cut(env["STATE_DIRECTORY"], ":")
	xdg, serviceState := env["XDG_STATE_HOME"], ""
	if o.ServiceState != nil {
		serviceState = o.ServiceState(c.meta.file, o.UID)
	}
	switch {
	case filepath.IsAbs(given):
		c.StateDirectory = filepath.Clean(given)
	case o.UID == 0:
		c.StateDirectory = filepath.Join("/var/lib", name)
	case serviceState != "":
		c.StateDirectory = serviceState
	case filepath.IsAbs(xdg):
		c.StateDirectory = filepath.Join(xdg, name)
	case filepath.IsAbs(o.Home):
		c.StateDirectory = filepath.Join(o.Home, ".local", "state", name)
	default:
		c.StateDirectory = filepath.Join(o.TempDir, name+"-"+strconv.Itoa(o.UID))
	}
}

// PrepareStateDirectory creates state_directory with mode 0700, and its parents with mode 0755
// (before the umask). It rejects a directory that other users can write to, because the directory
// contains job tokens and undelivered logs.
func (c *Config) PrepareStateDirectory() error {
	dir := c.StateDirectory
	if dir == "" {
		return errors.New("state_directory: is unknown: set it to a directory of the agent's user")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("state_directory: creating the parent directory of %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("state_directory: creating %s: %w", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("state_directory: %w", err)
	}
	if info.Mode()&os.ModeSymlink != 0 && !c.stateIsShared() {
		// The directory can be an administrator's link to a larger disk. However, in a parent where
		// every user can create files, a link may be an attack.
		if info, err = os.Stat(dir); err != nil {
			return fmt.Errorf("state_directory: %w", err)
		}
	}
	if !info.IsDir() {
		return fmt.Errorf("state_directory: %s is not a directory: remove it or set another state_directory", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != c.meta.uid {
		return fmt.Errorf("state_directory: %s belongs to user %d, not to the agent's user %d: set another state_directory", dir, stat.Uid, c.meta.uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("state_directory: %s can be written by other users (mode %04o): run chmod 700 on it", dir, info.Mode().Perm())
	}
	return nil
}

// stateIsShared reports whether every user can create files in the parent, as in /tmp.
func (c *Config) stateIsShared() bool {
	info, err := os.Stat(filepath.Dir(c.StateDirectory))
	return err != nil || info.Mode().Perm()&0o002 != 0
}

// ServerAddress returns the host:port at which jobs reach a server on loopback, or "".
func (c *Config) ServerAddress() string {
	if c.DeployTarget != TargetDocker {
		return ""
	}
	return c.Docker.ServerAddress
}

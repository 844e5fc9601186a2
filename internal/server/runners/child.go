package runners

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
)

const (
	// stopTime is the time that the agent has to detach from its jobs.
	stopTime = 15 * time.Second
	// callTime bounds a call of the agent's program.
	callTime = 30 * time.Second
	maxLine  = 64 << 10
)

// command returns a call of the agent's program as its user.
func (s *Service) command(acc account, dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.opts.Programs, Program), args...) //nolint:noctx // the caller stops it
	cmd.Dir = dir
	cmd.Env = s.environment(dir)
	cmd.SysProcAttr = attributes(acc)
	return cmd
}

// call runs the agent's program and returns its output.
func (s *Service) call(ctx context.Context, acc account, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	cmd := s.command(acc, "/", args...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	abort := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer abort()
	if err := cmd.Wait(); err != nil {
		if text := firstLine(failure.Bytes()); text != "" {
			return nil, errors.New(strings.TrimPrefix(text, "error: "))
		}
		return nil, err
	}
	return out.Bytes(), nil
}

func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return string(line)
}

// checkAgent returns an error if the agent's program is missing, cannot be started by its user, or
// has another version than the server. Development builds have no comparable version.
func (s *Service) checkAgent(ctx context.Context, acc account) error {
	path := filepath.Join(s.opts.Programs, Program)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("built-in runners need the agent next to the server: %s is missing; copy it there from the agent's archive of the same version", path)
	}
	out, err := s.call(ctx, acc, "version")
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("the user %s may not run the agent of the built-in runners, %s: move the server and the programs next to it to a directory that all users can enter, such as /usr/local/bin", acc.name, path)
	}
	if err != nil {
		return fmt.Errorf("the user %s cannot start the agent of the built-in runners, %s: %w", acc.name, path, err)
	}
	if got := strings.TrimSpace(string(out)); got != s.opts.Version && !strings.HasPrefix(s.opts.Version, "v0.0.0-") {
		return fmt.Errorf("the agent next to the server has the version %s, and the server %s: replace %s by the agent of the server's version", got, s.opts.Version, path)
	}
	return nil
}

// jobNetwork is the network that the agent's program has created.
type jobNetwork struct {
	Name, Bridge string
	Subnet       netip.Prefix
	Gateway      netip.Addr
}

func (s *Service) ensureNetwork(ctx context.Context, acc account) (n jobNetwork, err error) {
	out, err := s.call(ctx, acc, "network", "ensure", "workflow-runners-"+s.key, "--bridge", "wfr-"+s.key)
	if err == nil {
		err = json.Unmarshal(out, &n)
	}
	return n, fault.While(err, "preparing the network of the built-in runners")
}

// ownSettings are the agent's settings that the environment cannot change.
var ownSettings = []string{
	"token", "service_url", "deploy_target", "state_directory", "working_directory", "max_concurrent_jobs", "single_run",
	"http_server_port", "auto_update", "log_format", "log_job_output", "syslog", "docker_network", "docker_server_address",
	"oidc_token_file", "organization_name", "runner_pool_id", "token_expiration",
}

// passed are the variables of the server that the agent receives, besides its own settings.
var passed = []string{
	"PATH", "LANG", "TZ", "DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE",
}

func (s *Service) environment(home string) []string {
	const prefix, forward = "PULUMI_AGENT_", "PULUMI_AGENT_ENV_FORWARD_ALLOWLIST"
	names := append(strings.Fields(s.opts.Getenv(forward)), passed...)
	env := []string{"HOME=" + home}
	for _, variable := range s.opts.Environ {
		name, _, _ := strings.Cut(variable, "=")
		key, isSetting := strings.CutPrefix(name, prefix)
		if isSetting && !slices.Contains(ownSettings, strings.ToLower(key)) || slices.Contains(names, name) && !isSetting {
			env = append(env, variable)
		}
	}
	return env
}

// prepareDir creates the agent's directory and returns it. Only root can change the directory
// itself, and only the agent's user the directory "state" in it.
func (s *Service) prepareDir(acc account) (string, error) {
	dir := filepath.Join(s.opts.Dir, s.key)
	state := filepath.Join(dir, "state")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Mkdir(state, 0o700)
	}
	if err == nil {
		err = os.Lchown(state, int(acc.uid), int(acc.gid))
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("creating the directory of the built-in runners: %w", err)
	}
	return dir, nil
}

// writeConfig writes the agent's configuration, which contains its token, to a file that only the
// agent's user can read.
func (s *Service) writeConfig(dir string, acc account, token string, more map[string]string) error {
	lines := []string{
		"# Written by workflow-server at each start.",
		"token: " + token,
		fmt.Sprintf("service_url: %q", s.opts.URL),
		"deploy_target: " + s.opts.Target,
		fmt.Sprintf("state_directory: %q", filepath.Join(dir, "state")),
		fmt.Sprintf("working_directory: %q", s.opts.Programs),
		fmt.Sprintf("max_concurrent_jobs: %d", s.opts.Slots),
		"http_server_port: 0", "auto_update: false", "log_format: json", "log_job_output: false",
	}
	for _, key := range []string{"docker_network", "docker_server_address"} {
		if value := more[key]; value != "" {
			lines = append(lines, fmt.Sprintf("%s: %q", key, value))
		}
	}
	f, err := os.CreateTemp(dir, ".agent-*")
	if err != nil {
		return fmt.Errorf("writing the configuration of the built-in runners: %w", err)
	}
	_, err = f.WriteString(strings.Join(append(lines, ""), "\n"))
	err = errors.Join(err, f.Chmod(0o600), f.Chown(int(acc.uid), int(acc.gid)), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), configFile(dir))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing the configuration of the built-in runners: %w", err), os.Remove(f.Name()))
	}
	return nil
}

func configFile(dir string) string { return filepath.Join(dir, "agent.yaml") }

// child is the running agent.
type child struct {
	cmd    *exec.Cmd
	exited chan error // receives one value
	ended  chan struct{}
	log    *logrus.Entry
}

func (s *Service) start(acc account, dir string) (*child, error) {
	cmd := s.command(acc, filepath.Join(dir, "state"), "run", "--config", configFile(dir))
	output, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the agent of the built-in runners: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the agent of the built-in runners: %w", err)
	}
	c := &child{cmd: cmd, exited: make(chan error, 1), ended: make(chan struct{}), log: s.opts.Log}
	go func() {
		defer close(c.ended)
		c.relay(output)
		err := cmd.Wait()
		if err == nil {
			err = errors.New("without an error")
		}
		c.exited <- err
	}()
	return c, nil
}

// stop makes the agent detach from its jobs, and waits until it has exited.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTime, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	<-c.ended
}

// relay writes the agent's log to the server's log.
func (c *child) relay(output io.Reader) {
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			c.record(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (c *child) record(line []byte) {
	fields := logrus.Fields{}
	if json.Unmarshal(line, &fields) != nil {
		c.log.Info(strings.TrimSpace(string(line)))
		return
	}
	text, _ := fields["msg"].(string)
	name, _ := fields["level"].(string)
	level, err := logrus.ParseLevel(name)
	if err != nil || level < logrus.ErrorLevel {
		level = logrus.ErrorLevel // the server must not exit or panic with its agent
	}
	for _, own := range []string{"msg", "level", "time"} {
		delete(fields, own)
	}
	c.log.WithFields(fields).Log(level, text)
}

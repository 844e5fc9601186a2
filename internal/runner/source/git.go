package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// passedVariables are the variables of the step's environment that git receives, to find programs
// and reach the network. The user controls the others, which could change git's behaviour.
var passedVariables = []string{
	"PATH", "TMPDIR", "TZ",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
}

// gitConfig is git's complete configuration. The runner writes it to a file because git before 2.31
// ignores GIT_CONFIG_COUNT.
var gitConfig = [][2]string{
	{"advice.detachedHead", "false"},
	{"core.autocrlf", "false"},
	{"core.fsmonitor", "false"},
	{"core.hooksPath", os.DevNull},
	{"core.protectHFS", "true"},
	{"core.protectNTFS", "true"},
	{"credential.helper", ""}, // an empty value removes all helpers
	{"fetch.recurseSubmodules", "false"},
	{"fetch.unpackLimit", "1"}, // packs are few, so a workspace can check each of them
	{"gc.auto", "0"},
	{"http.lowSpeedLimit", "100"}, // in bytes per second; a transfer slower than this for lowSpeedTime is aborted
	{"http.lowSpeedTime", "120"},
	{"init.defaultBranch", "main"},
	{"maintenance.auto", "false"}, // it would run in the background, next to the steps of the job
	{"safe.directory", "*"},       // the checkout belongs to the runner, no matter who owns its volume
	{"submodule.recurse", "false"},
	{"transfer.bundleURI", "false"}, // fetch objects only from the repository's server
	{"promisor.acceptFromServer", "none"},
}

func environment(environ []string, private string, redirects bool) ([]string, error) {
	home := filepath.Join(private, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, fmt.Errorf("creating a home directory for git: %w", err)
	}
	var config strings.Builder
	for _, entry := range gitConfig {
		section, name, _ := strings.Cut(entry[0], ".")
		fmt.Fprintf(&config, "[%s]\n\t%s = %s\n", section, name, entry[1])
	}
	if !redirects {
		config.WriteString("[http]\n\tfollowRedirects = false\n")
	}
	configFile := filepath.Join(home, ".gitconfig")
	if err := os.WriteFile(configFile, []byte(config.String()), 0o600); err != nil {
		return nil, fmt.Errorf("writing git's configuration: %w", err)
	}
	var env []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(passedVariables, name) {
			env = append(env, entry)
		}
	}
	env = append(
		env,
		"HOME="+home,
		"XDG_CONFIG_HOME="+home,
		"LC_ALL=C", // failureSigns lists messages in this locale
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL="+configFile,
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=https:http:ssh",
		"GIT_LFS_SKIP_SMUDGE=1",
		"GIT_LITERAL_PATHSPECS=1",
	)
	return env, nil
}

type commandLine struct {
	dir string
	env []string
	log io.Writer

	redirect string // the last target in the log
}

// Limits on git's output. A server determines the length of a list of refs, in which HEAD's entry
// comes first.
const (
	maxOutput      = 1 << 20
	maxErrorOutput = 64 << 10
)

// killDelay limits how long git's helpers can hold its output open after git was killed.
const killDelay = 5 * time.Second

// run runs git and returns its standard output. If git itself fails, the error is a
// [*commandError].
func (c *commandLine) run(ctx context.Context, args ...string) (string, error) {
	return c.input(ctx, "", args...)
}

// input is like run, with a text for git's standard input.
func (c *commandLine) input(ctx context.Context, text string, args ...string) (string, error) {
	stdout := &limitedBuffer{limit: maxOutput}
	if err := c.stream(ctx, text, stdout, args...); err != nil {
		return "", err
	}
	return stdout.String(), nil
}

// stream is like input, and writes git's output to stdout.
func (c *commandLine) stream(ctx context.Context, text string, stdout io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	if text != "" {
		cmd.Stdin = strings.NewReader(text)
	}
	cmd.Dir, cmd.Env = c.dir, c.env
	stderr := &limitedBuffer{limit: maxErrorOutput}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// git starts helper processes for the transport, which must exit together with git.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	err := cmd.Run()
	switch {
	case err == nil:
		c.noteRedirects(stderr.String())
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("git is not installed where the job runs: use an image that has git")
	}
	return &commandError{command: args[0], output: stderr.String(), err: err}
}

type commandError struct {
	command string
	output  string // git's error output
	err     error
}

// Error returns the last meaningful line that git printed.
func (e *commandError) Error() string {
	if line := lastLine(e.output); line != "" {
		return line
	}
	return fmt.Sprintf("git %s: %v", e.command, e.err)
}

func (e *commandError) Unwrap() error { return e.err }

var afterSSH = []string{
	"Could not read from remote repository.",
	"Please make sure you have the correct access rights",
	"and the repository exists.",
}

// lastLine returns the last line of output that states a cause, without git's prefixes.
func lastLine(output string) string {
	last := ""
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(output), "\n")) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"fatal: ", "error: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		switch {
		case line == "":
		case slices.Contains(afterSSH, line):
			last = line // kept if no line states a cause
		default:
			return line
		}
	}
	return last
}

type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

package installer

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"workflowagent/internal/dev/must"
)

// typed runs the installer on a terminal, with the script piped into the shell, and types answer at
// the prompt. It returns the output and the exit code.
func (b *box) typed(t *testing.T, answer string, args ...string) (string, int) {
	t.Helper()
	cmd, terminal := b.onTerminal(t, args...)
	var out bytes.Buffer
	buffer := make([]byte, 4096)
	for asked := false; ; {
		n, err := terminal.Read(buffer)
		out.Write(buffer[:n])
		if !asked && strings.Contains(out.String(), "[y/N] ") {
			asked = true
			must.Get(io.WriteString(terminal, answer))(t)
		}
		if err != nil {
			break // reading from a closed terminal fails
		}
	}
	_ = cmd.Wait() // the exit code suffices
	return out.String(), cmd.ProcessState.ExitCode()
}

// onTerminal starts the installer on a terminal, with the script piped into the shell. It returns
// the command and the test's side of the terminal.
func (b *box) onTerminal(t *testing.T, args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	b.piped = true
	cmd := b.command(t.Context(), t, args...)
	terminal, tty, err := pty.Open()
	must.OK(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	cmd.Stdout, cmd.Stderr = tty, tty
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	err = cmd.Start()
	_ = tty.Close() // the child has its own copy
	must.OK(t, err)
	if err := terminal.SetReadDeadline(time.Now().Add(time.Minute)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		t.Fatal(err)
	}
	return cmd, terminal
}

func TestProfile(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.0.0")
	m.inShells(t, func(t *testing.T, b *box) {
		b.env = []string{"SHELL=/usr/bin/zsh"}
		profile := filepath.Join(b.home, ".zshrc")
		writeFile(t, profile, []byte("alias a=b # no line end"), 0o600)
		line := `export PATH="$PATH":'` + b.root() + "'"
		read := func() string {
			text := must.Get(os.ReadFile(profile))(t)
			return string(text)
		}

		out, code := b.typed(t, "n\n")
		if code != 0 || !strings.Contains(out, "PATH in "+profile+"? [y/N]") || !strings.Contains(out, "add this line to "+profile) || read() != "alias a=b # no line end" {
			t.Fatalf("after no: exit code %d, the profile is %q\n%s", code, read(), out)
		}
		if out, code = b.typed(t, "y\n"); code != 0 || !strings.HasPrefix(read(), "alias a=b # no line end\n") || strings.Count(read(), line+"\n") != 1 {
			t.Fatalf("after yes: exit code %d, the profile is %q\n%s", code, read(), out)
		}
		if info, err := os.Stat(profile); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the profile is %v (%v)", info, err)
		}
		changed := read()
		if out, code = b.typed(t, "y\n"); code != 0 || read() != changed || strings.Contains(out, "[y/N]") || !strings.Contains(out, "already adds the agent to PATH") {
			t.Fatalf("the second time: exit code %d, the profile is %q\n%s", code, read(), out)
		}
		b.piped = false
		b.want(t, 0, []string{profile + " still has the line"}, "--uninstall")
	})
}

func TestProfileFiles(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.0.0")
	for name, c := range map[string]struct {
		env  []string
		args []string
		file string // "": no file is changed
		has  string // content before
	}{
		"bash":            {[]string{"SHELL=/bin/bash"}, nil, ".bashrc", ""},
		"sh":              {[]string{"SHELL=/bin/sh"}, nil, ".profile", ""},
		"fish":            {[]string{"SHELL=/usr/bin/fish"}, nil, "", ""},
		"unknown":         {[]string{"SHELL="}, nil, "", ""},
		"silent":          {[]string{"SHELL=/bin/bash"}, []string{"--silent"}, "", ""},
		"unwanted":        {[]string{"SHELL=/bin/bash"}, []string{"--no-modify-path"}, "", ""},
		"older installer": {[]string{"SHELL=/bin/bash"}, nil, ".bashrc", "export PATH=$PATH:$HOME/.pulumi/bin/customer-managed-workflow-agent\n"},
		"mention only":    {[]string{"SHELL=/bin/bash"}, nil, ".bashrc", "# PATH=$HOME/.pulumi/bin/customer-managed-workflow-agent\n"},
		"yes, bash":       {[]string{"SHELL=/bin/bash"}, []string{"--yes"}, ".bashrc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, dash(t))
			b.env = c.env
			if c.has != "" {
				writeFile(t, filepath.Join(b.home, ".bashrc"), []byte(c.has), 0o600)
			}
			out, code := b.typed(t, "y\n", c.args...)
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			left := without(names(t, b.home), ".pulumi")
			if c.file == "" && len(left) > 0 || c.file != "" && (len(left) != 1 || left[0] != c.file) {
				t.Errorf("%q were written\n%s", left, out)
			}
			if c.has != "" {
				text, err := os.ReadFile(filepath.Join(b.home, c.file))
				if changed := string(text) != c.has; err != nil || changed != (name == "mention only") {
					t.Errorf("the profile is %q (%v)", text, err)
				}
			}
			if wants := name == "fish" || name == "unknown" || name == "silent"; strings.Contains(out, "add this line") != wants {
				t.Errorf("it prints the line, or does not:\n%s", out)
			}
		})
	}
}

func TestDowngradeAsked(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.0.0")
	m.release(t, "v1.1.0")
	b := newBox(t, m, dash(t))
	b.want(t, 0, nil, "--version=1.1.0")
	if out, code := b.typed(t, "\n", "--no-modify-path"); code != 1 || !strings.Contains(out, "newer than v1.0.0. Install the older one? [y/N]") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	b.whole(t, "v1.1.0", "")
	if out, code := b.typed(t, "yes\n", "--no-modify-path"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	b.whole(t, "v1.0.0", "v1.1.0")
}

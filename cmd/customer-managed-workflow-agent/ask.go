package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/settings"
)

const maxTries = 5

// ask asks for the settings that an agent needs. An empty answer keeps the value in brackets.
func (c *configuring) ask(ctx context.Context, t *terminal, path string, text []byte) ([]settings.Change, error) {
	// The values in the file, whatever the environment sets.
	fileOnly := c.options
	fileOnly.Environ = nil
	now, err := config.LoadText(fileOnly, path, text)
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("correct the file first, or remove it:\n%w", err))
	}
	fmt.Fprintln(c.out, "Enter keeps what is in [brackets]. Nothing is written before the last answer.")
	var changes []settings.Change
	question := func(key, prompt, current string) error {
		for range maxTries {
			change, err := c.question(ctx, t, key, prompt, current)
			if err != nil {
				return err
			}
			if change.Value == "" || change.Value == current {
				return nil // kept, even if its check failed
			}
			changes = slices.DeleteFunc(changes, func(c settings.Change) bool { return c.Key == key })
			changes = append(changes, change)
			ok, err := c.checkAnswer(ctx, t, path, text, changes)
			if ok || err != nil {
				return err
			}
			fmt.Fprintln(c.out, "Correct the answer, or press Enter to keep it.")
			current = change.Value
			if config.Table().IsSecret(key) {
				current = "the one just given"
			}
		}
		return nil
	}
	if err := question("service_url", "URL of the control plane", now.ServiceURL); err != nil {
		return nil, err
	}
	if now.UsesOIDC() {
		fmt.Fprintln(c.out, "The token of the agent pool comes from the exchange of oidc_token_file.")
	} else {
		current := ""
		if now.HasToken() {
			current = "the configured one"
		}
		if err := question("token", "Token of the agent pool, not shown", current); err != nil {
			return nil, err
		}
	}
	if err := question("deploy_target", "Where jobs run: docker, or process (no isolation)", string(now.DeployTarget)); err != nil {
		return nil, err
	}
	return changes, nil
}

func (c *configuring) checkAnswer(ctx context.Context, t *terminal, path string, text []byte, changes []settings.Change) (bool, error) {
	if c.noCheck {
		return true, nil
	}
	edited, err := config.Table().Edit(path, text, changes)
	if err != nil {
		return false, config.Invalid(err)
	}
	loaded, err := config.LoadText(c.options, path, edited)
	if err != nil {
		return false, config.Invalid(err)
	}
	report, err := daemon.Examine(ctx, doctor.Options{
		Config: loaded, Version: c.version, UserAgent: daemon.UserAgent(c.version), Only: checksOf[changes[len(changes)-1].Key],
		Done: func(r doctor.Result) {
			if r.Status == doctor.Fail {
				doctor.Print(c.out, r, t.coloured())
			}
		},
	})
	if ctx.Err() != nil {
		return false, errStopped
	}
	return report.OK, err
}

// question asks until the answer is valid. An empty answer keeps a non-empty current.
func (c *configuring) question(ctx context.Context, t *terminal, key, prompt, current string) (settings.Change, error) {
	if current != "" {
		prompt += " [" + current + "]"
	}
	for range maxTries {
		read := t.line
		if config.Table().IsSecret(key) {
			read = t.secret
		}
		answer, err := read(ctx, prompt+": ")
		if err != nil {
			return settings.Change{}, err
		}
		answer = strings.TrimSpace(answer)
		if answer == "" && current == "" {
			fmt.Fprintln(c.out, "An answer is required.")
			continue
		}
		change, err := config.Table().Check(settings.Change{Key: key, Value: answer}, c.options.Dirs())
		if err == nil {
			return change, nil
		}
		fmt.Fprintln(c.out, err)
	}
	return settings.Change{}, config.Invalid(fmt.Errorf("%s: no valid answer in %d attempts; nothing was written", key, maxTries))
}

type terminal struct {
	in  *os.File
	out io.Writer
}

func (t *terminal) coloured() bool { return t != nil && os.Getenv("NO_COLOR") == "" }

// secret asks a question without showing the answer.
func (t *terminal) secret(ctx context.Context, prompt string) (string, error) {
	fd := int(t.in.Fd())
	modes, err := unix.IoctlGetTermios(fd, getModes)
	if err != nil {
		return "", fmt.Errorf("reading the terminal's modes: %w", err)
	}
	hidden := *modes
	hidden.Lflag &^= unix.ECHO
	// Hide input before the prompt appears, because the answer may follow at once.
	if err := unix.IoctlSetTermios(fd, setModes, &hidden); err != nil {
		return "", fmt.Errorf("hiding the answer: %w", err)
	}
	answer, err := t.line(ctx, prompt)
	fmt.Fprintln(t.out) // the typed newline was hidden
	return answer, errors.Join(err, unix.IoctlSetTermios(fd, setModes, modes))
}

// line asks a question and returns the answer. Only input ends a read of a terminal: when ctx ends,
// the goroutine reads on until the process exits.
func (t *terminal) line(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(t.out, prompt)
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := t.readLine()
		answered <- answer{text, err}
	}()
	select {
	case a := <-answered:
		if errors.Is(a.err, io.EOF) {
			return "", errStopped
		}
		return a.text, a.err
	case <-ctx.Done():
		return "", errStopped
	}
}

// readLine reads byte by byte, because what was typed ahead answers the next question.
func (t *terminal) readLine() (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxToken; {
		n, err := t.in.Read(one)
		switch {
		case n > 0 && one[0] == '\n':
			return string(line), nil
		case n > 0:
			line = append(line, one[0])
		case err != nil:
			return "", err
		}
	}
	return "", errors.New("the answer is too long")
}

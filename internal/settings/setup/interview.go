// Package setup writes a program's configuration file: it asks an operator on a terminal for the
// settings, or takes them from flags. The program decides what to ask and what to check.
package setup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"workflowagent/internal/settings"
)

// MaxTries limits the wrong answers to a question.
const MaxTries = 5

// Interview asks for settings and collects the changes.
type Interview struct {
	Terminal *Terminal
	Out      io.Writer
	Table    *settings.Table
	Dirs     settings.Dirs
	// Check reports whether the newest of the changes works, and prints why not. If it is nil, every valid
	// answer works.
	Check func(ctx context.Context, changes []settings.Change) (bool, error)

	Changes []settings.Change
}

// Ask prompts for a setting until the answer is valid and works. An empty answer keeps current, even
// if its check failed, which is printed.
func (i *Interview) Ask(ctx context.Context, key, prompt, current string) error {
	return i.ask(ctx, key, prompt, current, "")
}

// Propose is like [Interview.Ask] for a setting that the file does not contain: an empty answer sets it to
// the proposal.
func (i *Interview) Propose(ctx context.Context, key, prompt, proposal string) error {
	return i.ask(ctx, key, prompt, proposal, proposal)
}

// ask prompts for a setting. An empty answer means empty, which is "" to change nothing.
func (i *Interview) ask(ctx context.Context, key, prompt, current, empty string) error {
	fails := false
	for range MaxTries {
		change, err := i.question(ctx, key, prompt, current, empty)
		if err != nil {
			return err
		}
		if change.Value == "" || change.Value == current && empty == "" {
			break
		}
		i.Set(change)
		if i.Check == nil {
			return nil
		}
		ok, err := i.Check(ctx, i.Changes)
		if ok || err != nil {
			return err
		}
		fails = true
		fmt.Fprintln(i.Out, "Correct the answer, or press Enter to keep it.")
		current, empty = change.Value, ""
		if i.Table.IsSecret(key) {
			current = "the one just given"
		}
	}
	if fails {
		i.Keep(key)
	}
	return nil
}

// Keep prints that the answer to the question of a key stays, although its check has failed.
func (i *Interview) Keep(key string) {
	fmt.Fprintf(i.Out, "Keeping %s, although its check failed.\n", key)
}

// Set adds a change. It replaces an earlier one of the same key.
func (i *Interview) Set(change settings.Change) {
	i.Changes = append(slices.DeleteFunc(i.Changes, func(earlier settings.Change) bool { return earlier.Key == change.Key }), change)
}

// question prompts until the response is valid. An empty response means empty, unless current is empty:
// then an answer is required.
func (i *Interview) question(ctx context.Context, key, prompt, current, empty string) (settings.Change, error) {
	if current != "" {
		prompt += " [" + current + "]"
	}
	for range MaxTries {
		read := i.Terminal.Line
		if i.Table.IsSecret(key) {
			read = i.Terminal.Secret
		}
		answer, err := read(ctx, prompt+": ")
		if err != nil {
			return settings.Change{}, err
		}
		answer = strings.TrimSpace(answer)
		if answer == "" && current == "" {
			fmt.Fprintln(i.Out, "An answer is required.")
			continue
		}
		if answer == "" {
			answer = empty
		}
		change, err := i.Table.Check(settings.Change{Key: key, Value: answer}, i.Dirs)
		if err == nil {
			return change, nil
		}
		fmt.Fprintln(i.Out, err)
	}
	return settings.Change{}, settings.Invalid(fmt.Errorf("%s: no valid answer in %d attempts; nothing was written", key, MaxTries))
}

package configure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/settings"
)

const maxTries = 5

// ask prompts for the settings that an agent needs. An empty response keeps the value in brackets.
func (o Options) ask(ctx context.Context, t *terminal, path string, text []byte) ([]settings.Change, error) {
	// The prompts show the values in the file, regardless of the environment.
	fileOnly := o.Load
	fileOnly.Environ = nil
	now, err := config.LoadText(fileOnly, path, text)
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("correct the file first, or remove it:\n%w", err))
	}
	fmt.Fprintln(o.Out, "Press Enter to keep the value in [brackets]. Nothing is written before the last answer.")
	var changes []settings.Change
	question := func(key, prompt, current string) error {
		for range maxTries {
			change, err := o.question(ctx, t, key, prompt, current)
			if err != nil {
				return err
			}
			if change.Value == "" || change.Value == current {
				return nil // the value is kept, even if its check failed
			}
			changes = slices.DeleteFunc(changes, func(earlier settings.Change) bool { return earlier.Key == key })
			changes = append(changes, change)
			ok, err := o.checkAnswer(ctx, t, path, text, changes)
			if ok || err != nil {
				return err
			}
			fmt.Fprintln(o.Out, "Correct the answer, or press Enter to keep it.")
			current = change.Value
			if config.Table().IsSecret(key) {
				current = "the one just given"
			}
		}
		return nil
	}
	if o.ServiceURL == "" {
		err = question("service_url", "URL of the control plane", now.ServiceURL)
	} else {
		changes, err = o.fromFlags()
	}
	if err != nil {
		return nil, err
	}
	if now.UsesOIDC() {
		fmt.Fprintln(o.Out, "The token of the agent pool comes from the exchange of oidc_token_file.")
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

func (o Options) checkAnswer(ctx context.Context, t *terminal, path string, text []byte, changes []settings.Change) (bool, error) {
	if o.NoCheck {
		return true, nil
	}
	edited, err := config.Table().Edit(path, text, changes)
	if err != nil {
		return false, config.Invalid(err)
	}
	loaded, err := config.LoadText(o.Load, path, edited)
	if err != nil {
		return false, config.Invalid(err)
	}
	report, err := daemon.Examine(ctx, doctor.Options{
		Config: loaded, Version: o.Version, UserAgent: daemon.UserAgent(o.Version), Only: checksOf[changes[len(changes)-1].Key],
		Done: func(r doctor.Result) {
			if r.Status == doctor.Fail {
				doctor.Print(o.Out, r, t.coloured())
			}
		},
	})
	if ctx.Err() != nil {
		return false, errStopped
	}
	return report.OK, err
}

// lacksToken reports whether the flags set only the URL of the control plane, and the file has no
// token either. Users of a terminal are then asked for the other settings.
func (o Options) lacksToken(path string, text []byte) bool {
	if o.ServiceURL == "" || o.TokenFile != "" || o.DeployTarget != "" || len(o.Set) > 0 {
		return false
	}
	fileOnly := o.Load
	fileOnly.Environ = nil
	now, err := config.LoadText(fileOnly, path, text)
	return err == nil && !now.HasToken() && !now.UsesOIDC()
}

// question prompts until the response is valid. An empty response keeps current, unless current is
// empty.
func (o Options) question(ctx context.Context, t *terminal, key, prompt, current string) (settings.Change, error) {
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
			fmt.Fprintln(o.Out, "An answer is required.")
			continue
		}
		change, err := config.Table().Check(settings.Change{Key: key, Value: answer}, o.Load.Dirs())
		if err == nil {
			return change, nil
		}
		fmt.Fprintln(o.Out, err)
	}
	return settings.Change{}, config.Invalid(fmt.Errorf("%s: no valid answer in %d attempts; nothing was written", key, maxTries))
}

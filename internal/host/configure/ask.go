package configure

import (
	"context"
	"fmt"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/setup"
)

// ask prompts for the settings that an agent needs. An empty response keeps the value in brackets.
func (o Options) ask(ctx context.Context, t *setup.Terminal, path string, text []byte) ([]settings.Change, error) {
	// The prompts show the values in the file, regardless of the environment.
	fileOnly := o.Load
	fileOnly.Environ = nil
	now, err := config.LoadText(fileOnly, path, text)
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("correct the file first, or remove it:\n%w", err))
	}
	fmt.Fprintln(o.Out, "Press Enter to keep the value in [brackets]. Nothing is written before the last answer.")
	questions := &setup.Interview{Terminal: t, Out: o.Out, Table: config.Table(), Dirs: o.Load.Dirs()}
	questions.Check = func(ctx context.Context, changes []settings.Change) (bool, error) {
		return o.checkAnswer(ctx, t, path, text, changes)
	}
	if o.ServiceURL == "" {
		if now.Source("service_url").IsDefault() {
			fmt.Fprintln(o.Out, "\nThe default is Pulumi Cloud. For your own workflow-server, answer its URL (external_url).")
		}
		err = questions.Ask(ctx, "service_url", "URL of the control plane", now.ServiceURL)
	} else {
		questions.Changes, err = o.fromFlags()
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
		fmt.Fprintln(o.Out, "\nThe console shows the token once, when you create the pool or a further token.")
		if err := questions.Ask(ctx, "token", "Token of the agent pool, not shown", current); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(o.Out, "\ndocker runs each job in its own container, and needs a Docker Engine. process runs jobs as the agent's user, with\n"+
		"the pulumi CLI and the languages of this machine, for repositories that you trust.")
	if err := questions.Ask(ctx, "deploy_target", "Where jobs run: docker, or process (no isolation)", string(now.DeployTarget)); err != nil {
		return nil, err
	}
	return questions.Changes, nil
}

func (o Options) checkAnswer(ctx context.Context, t *setup.Terminal, path string, text []byte, changes []settings.Change) (bool, error) {
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
		Done: func(r checkup.Result) {
			if r.Status == checkup.StatusFail {
				checkup.Print(o.Out, r, t.Coloured())
			}
		},
	})
	if ctx.Err() != nil {
		return false, setup.ErrStopped
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

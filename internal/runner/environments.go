package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

const (
	// environmentsTimeout is the limit of one request, which the server needs for an evaluation with providers.
	environmentsTimeout = 2 * time.Minute
	// environmentsRetryTime is the time for which the step repeats its request if the server does not answer.
	environmentsRetryTime = 5 * time.Minute
	// dirEnvironments is the directory, in the job's, of the files of environments.
	dirEnvironments = "environment-files"
)

// openEnvironments performs the step that opens the environments of the deployment's settings. The runner itself performs
// it, so that no program can read the secrets before they are masked.
func (j *job) openEnvironments(ctx context.Context, step workflow.Step, out *stepLog) delivery.Verdict {
	d := j.definition.Deployment
	if d == nil || len(d.Environments) == 0 {
		return delivery.Failed(workflow.ReasonInvalidJob, "the job definition has the step %q but no environments", step.Name)
	}
	out.line("Opening " + strings.Join(d.Environments, ", "))
	var err error
	j.untilStopped(ctx, func(ctx context.Context) { err = j.shareEnvironments(ctx, out) })
	if reason, stopped := j.stop.reason(); stopped {
		return delivery.Failed(reason, "%s while %s was running", describeStop(reason), step.Name)
	}
	return endOfOwnStep(err, out)
}

// shareEnvironments opens the environments and gives their variables and files to the steps that follow.
func (j *job) shareEnvironments(ctx context.Context, out *stepLog) error {
	opened, err := j.requestEnvironments(ctx, out)
	if err != nil {
		return fmt.Errorf("opening the environments of the deployment settings: %w", err)
	}
	var secrets []redact.Secret
	for _, list := range [][]protocol.JobEnvironment{opened.Variables, opened.Files} {
		for _, v := range list {
			if v.Secret {
				secrets = append(secrets, redact.Secret{Name: v.Name, Value: v.Value})
			}
		}
	}
	if err := j.masks.Add(ctx, secrets...); err != nil {
		return fmt.Errorf("masking the secrets of the environments: %w", err)
	}
	for _, secret := range secrets {
		if secret.Value != "" && len(secret.Value) < redact.MinLength {
			out.line(fmt.Sprintf("warning: cannot mask the value of %s, which is shorter than %d characters", secret.Name, redact.MinLength))
		}
	}
	variables := map[string]string{}
	var names []string
	for _, v := range opened.Variables {
		variables[v.Name] = v.Value
		names = append(names, v.Name)
	}
	dir := filepath.Join(j.opts.JobDir, dirEnvironments)
	for i, f := range opened.Files {
		variables[f.Name] = filepath.Join(dir, strconv.Itoa(i+1))
		names = append(names, f.Name+" (a file)")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(variables[f.Name], []byte(f.Value), 0o600)); err != nil {
			return fmt.Errorf("writing the files of the environments: %w", err)
		}
	}
	for _, text := range opened.Opened {
		out.line("Opened " + text)
	}
	if len(names) == 0 {
		out.line("warning: the environments have neither environmentVariables nor files, so the steps get nothing from them")
	} else {
		out.line("The following steps get " + strings.Join(names, ", "))
	}
	for _, notice := range j.env.Share(variables) {
		out.line(notice)
	}
	return nil
}

// requestEnvironments has the server open the environments, and repeats that while the server does not answer.
func (j *job) requestEnvironments(ctx context.Context, out *stepLog) (opened protocol.JobEnvironments, err error) {
	ctx, cancel := context.WithTimeout(ctx, environmentsRetryTime)
	defer cancel()
	warned := false
	again := func(err error) bool {
		if protocol.Permanent(err) || ctx.Err() != nil {
			return false
		}
		if !warned {
			warned = true
			out.line("warning: trying again for up to " + environmentsRetryTime.String() + ", because the server did not open them: " + err.Error())
		}
		return true
	}
	policy := retry.Policy{First: cmp.Or(j.opts.Timing.Retry, time.Second), Max: 15 * time.Second}
	err = policy.Do(ctx, again, func() (err error) {
		call, cancel := context.WithTimeout(ctx, environmentsTimeout)
		defer cancel()
		opened, err = j.server.OpenEnvironments(call)
		return err
	})
	if err == nil && opened.Problem != "" {
		err = errors.New(opened.Problem)
		if !j.openings.await(ctx) { // errors of definitions can repeat secrets
			err = errors.New("they cannot be opened, and the reason is withheld, because it can contain secrets that cannot be masked")
		}
	}
	return opened, err
}

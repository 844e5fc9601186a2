package runner

import (
	"context"
	"fmt"
	"path/filepath"

	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/pulumi"
	"workflowagent/internal/workflow"
)

// checkPulumi returns an error unless the steps will run a version of pulumi that the job selects. It
// records the version.
func (j *job) checkPulumi(ctx context.Context) error {
	d := j.definition.Deployment
	if d == nil || d.PulumiVersion == "" {
		return nil
	}
	wanted, err := workflow.ParseVersionRange(d.PulumiVersion)
	if err != nil {
		return fmt.Errorf("the version of pulumi in %s of the deployment settings: %w", workflow.PulumiVersionVariable, err)
	}
	vars := j.env.Base().Vars
	path, err := pulumi.FindIn(vars["PATH"])
	if err != nil {
		return fmt.Errorf("the deployment requires pulumi %s: %w", wanted, err)
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	var version workflow.Version
	j.untilStopped(ctx, func(ctx context.Context) {
		version, err = pulumi.Version(ctx, path, filepath.Join(j.opts.JobDir, protocol.DirWork), env)
	})
	switch {
	case err != nil:
		return fmt.Errorf("the deployment requires pulumi %s: %w", wanted, err)
	case !wanted.Contains(version):
		return fmt.Errorf("the deployment requires pulumi %s, but the job has pulumi %s: use an image with another version, "+
			"add one to the agent's pulumi_mirror and pulumi_checksums_file, or change %s in the deployment settings",
			wanted, version, workflow.PulumiVersionVariable)
	}
	j.pulumiVersion = version.String()
	return nil
}

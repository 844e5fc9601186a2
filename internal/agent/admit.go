package agent

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/imageref"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// admit returns an error if this agent must not run the job. It checks only the structured fields
// that the runner executes, never free text.
func (a *Agent) admit(claim protocol.PollResponse, definition *workflow.JobDefinition) error {
	refuse := func(format string, args ...any) error {
		return &executor.Error{Reason: workflow.ReasonRefused, Message: fmt.Sprintf(format, args...)}
	}
	kind := cmp.Or(claim.WorkflowType, workflow.TypeDeployment) // stock servers send no type
	if !slices.Contains(a.opts.Types, kind) {
		return refuse("This agent does not run workflows of the type %q: add it to enabled_workflow_types.", kind)
	}
	if len(workflow.Runnable([]workflow.Type{kind})) == 0 {
		return refuse("This agent cannot run workflows of the type %q.", kind)
	}
	if (kind == workflow.TypePolicyEvaluation) != (definition.PolicyEvaluation != nil) {
		return &executor.Error{Reason: workflow.ReasonInvalidJob, Message: fmt.Sprintf("The job's definition is not that of a workflow of the type %q.", kind)}
	}
	if problem := a.wrongPlatform(definition); problem != "" {
		return refuse("%s", problem)
	}
	if image := definition.Image; a.usesImages() {
		if image == nil || image.Reference == "" {
			return &executor.Error{Reason: workflow.ReasonInvalidJob, Message: "The job does not specify an image."}
		}
		if _, err := imageref.Parse(image.Reference); err != nil {
			return &executor.Error{Reason: workflow.ReasonInvalidJob, Message: fmt.Sprintf("%q is not the name of an image: %v.", image.Reference, err)}
		}
		if !a.opts.Rules.AllowsImage(image.Reference) {
			return refuse("This agent does not run the image %q: it is not in the host's allowed_images.", image.Reference)
		}
	}
	allowed := a.opts.Rules.RepositoryPatterns()
	if allowed != nil {
		if definition.Deployment == nil && definition.PolicyEvaluation == nil {
			return refuse("The job does not name its repository, and this agent's host restricts allowed_repositories.")
		}
		if i := slices.IndexFunc(definition.Steps[1:], isShell); i >= 0 {
			return refuse("Step %d of the job is a shell script, which could deploy from any repository, and this agent's host restricts allowed_repositories.", i+1)
		}
	}
	if git := gitSource(definition); git != nil && allowed != nil {
		// The runner parses the address with the same function and passes the result to git.
		repo, err := workflow.ParseRepository(git.RepoURL)
		if err != nil {
			return refuse("This agent's host restricts allowed_repositories, and the job's repository address is invalid: %v.", err)
		}
		if !workflow.AllowsRepository(allowed, repo.Name()) {
			return refuse("This agent does not deploy from the repository %q: it is not in the host's allowed_repositories.", repo)
		}
	}
	return nil
}

func isShell(step workflow.Step) bool {
	return step.Run != workflow.RunSetup && !strings.HasPrefix(step.Run, workflow.RunCommandPrefix)
}

func (a *Agent) wrongPlatform(definition *workflow.JobDefinition) string {
	want := definition.OS
	if a.usesImages() || want == "" {
		if want != "" && want != "linux" {
			return "The job requires the operating system " + want + ", but job containers run Linux."
		}
		return ""
	}
	// Without an image, the job runs on the host itself. A server that supports only Linux
	// containers sends linux for every job, so a darwin host accepts linux as well.
	if want != runtime.GOOS && want != "linux" {
		return "The job requires the operating system " + want + ", but this agent's host runs " + runtime.GOOS + "."
	}
	return ""
}

func (a *Agent) usesImages() bool { return a.opts.Executor.Name() != "process" }

func gitSource(definition *workflow.JobDefinition) *workflow.GitSource {
	if definition.Deployment == nil || definition.Deployment.Source == nil {
		return nil
	}
	return definition.Deployment.Source.Git
}

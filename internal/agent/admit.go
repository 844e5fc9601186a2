package agent

import (
	"runtime"
	"slices"
	"strings"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// admit returns why this agent must not run the job; nil means that it may. It checks the
// structured fields that the runner obeys, never text.
func (a *Agent) admit(claim protocol.PollResponse, definition *workflow.JobDefinition) *delivery.Verdict {
	refuse := func(format string, args ...any) *delivery.Verdict {
		v := delivery.Failed(workflow.ReasonRefused, format, args...)
		return &v
	}
	kind := claim.WorkflowType
	if kind == "" {
		kind = workflow.TypeDeployment // as stock servers send
	}
	if !slices.Contains(a.opts.Types, kind) {
		return refuse("This agent does not run workflows of the type %q: its enabled_workflow_types do not have it.", kind)
	}
	if kind != workflow.TypeDeployment {
		return refuse("This agent cannot run workflows of the type %q yet, only deployments.", kind)
	}
	if problem := a.wrongPlatform(definition); problem != "" {
		return refuse("%s", problem)
	}
	if image := definition.Image; a.usesImages() {
		if image == nil || image.Reference == "" {
			v := delivery.Failed(workflow.ReasonInvalidJob, "The job names no image to run in.")
			return &v
		}
		if !a.opts.Rules.AllowsImage(image.Reference) {
			return refuse("This agent does not run the image %q: the allowed_images of its host do not have it.", image.Reference)
		}
	}
	if !a.opts.Rules.AllowsRepository("") { // with rules, the fields they check must be present
		if definition.Deployment == nil {
			return refuse("The job does not say what repository it deploys from, and this agent's host has allowed_repositories.")
		}
		if i := slices.IndexFunc(definition.Steps[1:], isShell); i >= 0 {
			return refuse("Step %d of the job is shell text of the server, which could deploy from any repository, and this agent's host has allowed_repositories.", i+1)
		}
	}
	if git := gitSource(definition); git != nil && !a.opts.Rules.AllowsRepository("") {
		// The runner parses the address in the same way, and gives git the result.
		repo, err := workflow.ParseRepository(git.RepoURL)
		if err != nil {
			return refuse("This agent does not deploy from the repository of this job, and its host has allowed_repositories: its address cannot be used: %v.", err)
		}
		if !a.opts.Rules.AllowsRepository(repo.Name()) {
			return refuse("This agent does not deploy from the repository %q: the allowed_repositories of its host do not have it.", repo)
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
			return "The job asks for the operating system " + want + ", but job containers run linux."
		}
		return ""
	}
	// Without an image the job runs on the host itself. A server that knows only Linux
	// containers says linux for every job, so a darwin host accepts that too.
	if want != runtime.GOOS && want != "linux" {
		return "The job asks for the operating system " + want + ", but this agent's host runs " + runtime.GOOS + "."
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

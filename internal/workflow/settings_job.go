package workflow

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// CompleteSource sets the git repository's address if a client gave it only in gitHub or vcs.
func (s *Settings) CompleteSource() error {
	c := s.SourceContext
	if c != nil && (c.Hg != nil || c.Template != nil || c.Git != nil && c.Git.RepoURL != "") {
		return nil
	}
	repo, err := s.repositoryURL()
	if err != nil {
		return err
	}
	if repo == "" {
		if c != nil && c.Git != nil {
			return errors.New("sourceContext.git needs a repoUrl, or gitHub.repository or vcs.repository in the settings")
		}
		return nil
	}
	if c == nil {
		c = &SourceContext{}
		s.SourceContext = c
	}
	if c.Git == nil {
		c.Git = &SourceContextGit{}
	}
	c.Git.RepoURL = repo
	return nil
}

func (s *Settings) repositoryURL() (string, error) {
	if s.VCS != nil && s.VCS.Repository != "" {
		name, err := RepositoryName(s.VCS.Provider, s.VCS.Repository)
		if err != nil {
			return "", fmt.Errorf("vcs.repository: %w", err)
		}
		switch s.VCS.Provider {
		case "github":
			return "https://github.com/" + name + ".git", nil
		case "gitlab":
			return "https://gitlab.com/" + name + ".git", nil
		case "bitbucket":
			return "https://bitbucket.org/" + name + ".git", nil
		case "azure_devops":
			parts := strings.Split(name, "/")
			if len(parts) != 3 {
				return "", errors.New("vcs.repository must have the form organization/project/repository for azure_devops")
			}
			return "https://dev.azure.com" + (&url.URL{Path: "/" + parts[0] + "/" + parts[1] + "/_git/" + parts[2]}).EscapedPath(), nil
		default:
			if err := CheckRepoURL(s.VCS.Repository); err != nil {
				return "", fmt.Errorf("vcs.repository of the provider %q must be the address of a repository: %w", s.VCS.Provider, err)
			}
			return s.VCS.Repository, nil
		}
	}
	if s.GitHub != nil && s.GitHub.Repository != "" {
		return "https://github.com/" + strings.TrimSuffix(strings.Trim(s.GitHub.Repository, "/"), ".git") + ".git", nil
	}
	return "", nil
}

// Deployable returns an error if the settings can be stored but not deployed.
func (s *Settings) Deployable() error {
	if c := s.SourceContext; c != nil {
		switch {
		case c.Hg != nil:
			return errors.New("deployments from Mercurial repositories are not supported by this server; use git")
		case c.Template != nil:
			return errors.New("deployments from templates are not supported by this server; use git")
		}
	}
	return nil
}

// Option returns the options. An option that is not given is off.
func (s *Settings) Option() Options {
	if s.OperationContext == nil || s.OperationContext.Options == nil {
		return Options{}
	}
	o := s.OperationContext.Options
	on := func(b *bool) bool { return b != nil && *b }
	return Options{
		SkipInstallDependencies:     on(o.SkipInstallDependencies),
		SkipIntermediateDeployments: on(o.SkipIntermediateDeployments),
		Shell:                       o.Shell,
		DeleteAfterDestroy:          on(o.DeleteAfterDestroy),
		RemediateIfDriftDetected:    on(o.RemediateIfDriftDetected),
	}
}

// OnlyDetect makes a detection of drift change nothing, whatever the settings say over which these are put.
func (s *Settings) OnlyDetect() {
	if s.OperationContext == nil {
		s.OperationContext = &OperationContext{}
	}
	if s.OperationContext.Options == nil {
		s.OperationContext.Options = &OptionsSettings{}
	}
	s.OperationContext.Options.RemediateIfDriftDetected = new(bool)
}

// Caches reports whether jobs keep their workspaces. s can be nil.
func (s *Settings) Caches() bool { return s != nil && s.CacheOptions != nil && s.CacheOptions.Enable }

// Role returns the id of the role to which the deployment's access to other stacks is limited, or "".
func (s *Settings) Role() string {
	if s.OperationContext == nil || s.OperationContext.Role == nil {
		return ""
	}
	return s.OperationContext.Role.ID
}

// PreRunCommands returns the commands to run before the operation, except blank ones.
func (s *Settings) PreRunCommands() []string {
	if s.OperationContext == nil {
		return nil
	}
	isBlank := func(command string) bool { return strings.TrimSpace(command) == "" }
	return slices.DeleteFunc(slices.Clone(s.OperationContext.PreRunCommands), isBlank)
}

// PostRunCommands returns the commands to run after the operation.
func (s *Settings) PostRunCommands() []PostRunCommand {
	if s.OperationContext == nil {
		return nil
	}
	return s.OperationContext.PostRunCommands
}

// PostRunStepName returns the name of the n-th post-run command's step, starting at 0.
func PostRunStepName(n int) string { return fmt.Sprintf("Post-run command %d", n+1) }

// OIDC returns the cloud credentials that the job needs, or nil if it needs none.
func (s *Settings) OIDC() *OIDCSettings {
	if s.OperationContext == nil || !s.OperationContext.OIDC.Any() {
		return nil
	}
	return s.OperationContext.OIDC
}

// Git returns the git source, or nil if the image contains the program.
func (s *Settings) Git() *SourceContextGit {
	if s.SourceContext == nil {
		return nil
	}
	return s.SourceContext.Git
}

// Image returns the name of the image in which a job runs, or "". s can be nil.
func (s *Settings) Image() string {
	if s == nil || s.ExecutorContext == nil || s.ExecutorContext.ExecutorImage == nil {
		return ""
	}
	return s.ExecutorContext.ExecutorImage.Reference
}

// SetGitContents sets what else the checkout of a repository gets, as the variables of the settings
// request it.
func (s *Settings) SetGitContents(src *GitSource) {
	if s.OperationContext == nil {
		return
	}
	text := func(name string) string {
		v := s.OperationContext.EnvironmentVariables[name]
		text, _ := v.Value()
		return text
	}
	on := func(name string) bool {
		set, err := strconv.ParseBool(text(name))
		return err == nil && set
	}
	src.Submodules, src.LFS, src.Tags = on(SubmodulesVariable), on(LFSVariable), on(TagsVariable)
	switch depth, err := strconv.Atoi(text(DepthVariable)); {
	case err == nil && depth > 0:
		src.Depth = depth
	case err == nil, src.Tags: // tools need the commits between a tag and the checkout
		src.Depth = WholeHistory
	}
}

// Plan returns the steps of a deployment, without the post-run commands that follow them. The agent performs
// step 0.
func (s *Settings) Plan(op Operation) []Step {
	opts := s.Option()
	steps := []Step{{Name: "Setup", Run: RunSetup}}
	if s.OIDC() != nil {
		steps = append(steps, Step{Name: "Fetch cloud provider credentials via OIDC", Run: RunCredentials})
	}
	if s.Git() != nil {
		steps = append(steps, Step{Name: SourceStepName, Run: RunSourceGit})
	}
	if len(s.Environments()) > 0 { // package registries can need their variables
		steps = append(steps, Step{Name: EnvironmentsStepName, Run: RunEnvironments})
	}
	if !opts.SkipInstallDependencies {
		steps = append(steps, Step{Name: "Download dependencies", Run: RunDependencies})
	}
	for i := range s.PreRunCommands() {
		steps = append(steps, Step{Name: fmt.Sprintf("Pre-run command %d", i+1), Run: RunPreRun})
	}
	steps = append(steps, Step{Name: PulumiStepName(op), Run: RunPulumi + " " + string(op)})
	if op == OperationDestroy && opts.DeleteAfterDestroy {
		steps = append(steps, Step{Name: "Remove stack", Run: RunRemoveStack})
	}
	return steps
}

// Variable is an environment variable in the form that clients can read.
type Variable struct {
	Name, Value string // Value is "" for secrets
	Secret      bool
}

// Variables returns the environment variables, sorted by name.
func (s *Settings) Variables() []Variable {
	if s.OperationContext == nil {
		return nil
	}
	vars := s.OperationContext.EnvironmentVariables
	out := make([]Variable, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		v := vars[name]
		shown := Variable{Name: name, Secret: v.IsSecret()}
		if !shown.Secret {
			shown.Value, _ = v.Value()
		}
		out = append(out, shown)
	}
	return out
}

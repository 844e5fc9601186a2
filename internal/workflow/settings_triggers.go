package workflow

import (
	"fmt"
	"strings"
	"time"
)

// Triggers are what settings say about a repository in gitHub or vcs.
type Triggers struct {
	// Member is the member of the settings that contains them, gitHub or vcs.
	Member   string
	Provider string
	GitHubSettings
	// Branch is the short name of the branch of sourceContext.git, or "" if it names none.
	Branch string
}

// Triggers returns the triggers of the settings. ok is not set if they name no repository.
func (s *Settings) Triggers() (t Triggers, ok bool) {
	switch {
	case s.VCS != nil && s.VCS.Repository != "":
		t = Triggers{Member: "vcs", Provider: s.VCS.Provider, GitHubSettings: s.VCS.GitHubSettings}
	case s.GitHub != nil && s.GitHub.Repository != "":
		t = Triggers{Member: "gitHub", Provider: "github", GitHubSettings: *s.GitHub}
	default:
		return Triggers{}, false
	}
	t.Repository = strings.TrimSuffix(t.Repository, ".git")
	if name, err := RepositoryName(t.Provider, t.Repository); err == nil {
		t.Repository = name
	}
	if g := s.Git(); g != nil {
		t.Branch = strings.TrimPrefix(g.Branch, "refs/heads/")
		if strings.HasPrefix(t.Branch, "refs/") {
			t.Branch = "" // such as a tag, which is no branch to watch
		}
	}
	return t, true
}

// Any reports whether an event of the repository can cause a deployment.
func (t Triggers) Any() bool {
	return t.DeployCommits || t.PreviewPullRequests || t.PullRequestTemplate || t.DeployTags || t.DeployPullRequest != nil
}

// CleanTriggers removes what the public API discards: gitHub if vcs is set too, and
// deployPullRequest if another trigger is on.
func (s *Settings) CleanTriggers() {
	if s.VCS != nil {
		s.GitHub = nil
	}
	for _, g := range []*GitHubSettings{s.GitHub, s.vcsTriggers()} {
		if g != nil && (g.DeployCommits || g.PreviewPullRequests || g.PullRequestTemplate) {
			g.DeployPullRequest = nil
		}
	}
}

func (s *Settings) vcsTriggers() *GitHubSettings {
	if s.VCS == nil {
		return nil
	}
	return &s.VCS.GitHubSettings
}

// FromRepository reports whether the settings take the program from the repository with an address,
// however they name it.
func (s *Settings) FromRepository(address string) bool {
	c := s.SourceContext
	if c == nil || c.Hg == nil && c.Template == nil && (c.Git == nil || c.Git.RepoURL == "") {
		return true
	}
	if c.Git == nil {
		return false
	}
	have, err := ParseRepository(c.Git.RepoURL)
	if err != nil {
		return false
	}
	want, err := ParseRepository(address)
	return err == nil && have.Same(want)
}

// SetRepository makes the settings take the program from the repository with an address, unless they
// have credentials for another address of it.
func (s *Settings) SetRepository(address string) {
	if s.SourceContext == nil {
		s.SourceContext = &SourceContext{}
	}
	if s.SourceContext.Git == nil {
		s.SourceContext.Git = &SourceContextGit{}
	}
	if g := s.SourceContext.Git; g.RepoURL == "" || g.GitAuth == nil {
		g.RepoURL = address
	}
}

// DropCredentials removes the credentials for the git repository.
func (s *Settings) DropCredentials() {
	if g := s.Git(); g != nil {
		g.GitAuth = nil
	}
}

// ReviewTTL returns the time after which review stacks are destroyed, or 0 for never.
func (g GitHubSettings) ReviewTTL() (time.Duration, error) {
	if g.ReviewStackTTL == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(g.ReviewStackTTL)
	if err != nil || d < time.Minute {
		return 0, fmt.Errorf("%q is not a time of at least a minute, such as 72h", g.ReviewStackTTL)
	}
	return d, nil
}

// ForReview makes the settings of a template those of a review stack, which no event of the repository
// deploys by itself. command runs before the other commands.
func (s *Settings) ForReview(command string) {
	for _, g := range []*GitHubSettings{s.GitHub, s.vcsTriggers()} {
		if g != nil {
			*g = GitHubSettings{Repository: g.Repository, InstallationID: g.InstallationID}
		}
	}
	if s.OperationContext == nil {
		s.OperationContext = &OperationContext{}
	}
	s.OperationContext.PreRunCommands = append([]string{command}, s.OperationContext.PreRunCommands...)
}

package integrations

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// Settings are the settings of an integration that are not secret.
type Settings struct {
	DisableComments      bool `json:"disablePRComments,omitempty"`
	DisableDiff          bool `json:"disableDetailedDiff,omitempty"`
	DisableDraftComments bool `json:"disableDraftPRComments,omitempty"`
	DisableSummaries     bool `json:"disableNeoSummaries,omitempty"` // has no effect
	// ForkPulls is "none", the default, or "approve". BotPulls is "allow", the default, "approve" or "none".
	ForkPulls   vcs.Approval `json:"forkPullRequests,omitempty"`
	BotPulls    vcs.Approval `json:"botPullRequests,omitempty"`
	HonorSkipCI bool         `json:"honorSkipCI,omitempty"`
	// Events is "auto", the default, "webhook" or "poll".
	Events string `json:"events,omitempty"`
	// PreviewPool is the agent pool of previews and review stacks, or "" for that of the stack.
	PreviewPool string `json:"previewAgentPool,omitempty"`
	// TokenScope is [ScopeInstallation], or "" for tokens that are valid for one repository.
	TokenScope string `json:"githubTokenScope,omitempty"`
	// Repositories are the repositories that stacks may use. Without any, stacks may use all
	// repositories of a forge, but none of a custom integration.
	Repositories  []Listed `json:"repositories,omitempty"`
	CACertificate string   `json:"caCertificate,omitempty"` // PEM
	HostKeys      []string `json:"hostKeys,omitempty"`      // lines of known_hosts
	Environment   string   `json:"environment,omitempty"`   // name of an ESC environment; has no effect
}

// Listed is a repository that stacks may use.
type Listed struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName,omitempty"`
}

// The values of [Settings.Events].
const (
	EventsAuto    = "auto"
	EventsWebhook = "webhook"
	EventsPoll    = "poll"
)

// ScopeInstallation lets jobs of a GitHub App's integration clone all repositories of the
// installation.
const ScopeInstallation = "installation"

const maxRepositories = 1000

// SettingsOf returns the settings of an integration.
func SettingsOf(i store.VCSIntegration) (s Settings, err error) {
	if err := json.Unmarshal([]byte(i.Options), &s); err != nil {
		return s, fmt.Errorf("parsing the settings of integration %s: %w", i.ID, err)
	}
	return s, nil
}

// Policy returns the rules for pull requests.
func (s Settings) Policy(provider string) vcs.Policy {
	return vcs.Policy{Forks: s.ForkPulls, Bots: s.BotPulls, NoDrafts: provider == vcs.ProviderAzure, HonorSkipCI: s.HonorSkipCI}
}

func (s Settings) check(provider string) error {
	oneOf := func(name, value string, allowed ...string) error {
		if value == "" || slices.Contains(allowed, value) {
			return nil
		}
		return fmt.Errorf("%s must be one of %s", name, strings.Join(allowed, ", "))
	}
	for _, err := range []error{
		oneOf("forkPullRequests", string(s.ForkPulls), string(vcs.ApprovalNever), string(vcs.ApprovalRequired)),
		oneOf("botPullRequests", string(s.BotPulls), string(vcs.ApprovalNotAsked), string(vcs.ApprovalRequired), string(vcs.ApprovalNever)),
		oneOf("events", s.Events, EventsAuto, EventsWebhook, EventsPoll),
		oneOf("githubTokenScope", s.TokenScope, ScopeInstallation),
	} {
		if err != nil {
			return err
		}
	}
	if err := outbound.CheckAuthority(s.CACertificate); s.CACertificate != "" && err != nil {
		return fmt.Errorf("caCertificate: %w", err)
	}
	if len(s.Repositories) > maxRepositories {
		return fmt.Errorf("repositories has more than %d names", maxRepositories)
	}
	for _, r := range s.Repositories {
		if _, err := workflow.RepositoryName(provider, r.Name); err != nil {
			return fmt.Errorf("repositories: %w", err)
		}
	}
	return nil
}

// allowed returns the name of a repository as it is listed, or its own name if all repositories are
// allowed. ok is not set if stacks may not use the repository.
func (s Settings) allowed(provider, name string) (listed string, ok bool) {
	for _, r := range s.Repositories {
		if NameKey(provider, r.Name) == NameKey(provider, name) {
			return unescaped(provider, r.Name), true
		}
	}
	return name, len(s.Repositories) == 0 && provider != vcs.ProviderCustom
}

// unescaped returns a listed name without escapes. A git server can need its suffix .git.
func unescaped(provider, name string) string {
	if clean, err := workflow.RepositoryName(provider, name); err == nil && strings.Contains(name, "%") {
		if strings.HasSuffix(name, ".git") {
			clean += ".git"
		}
		return clean
	}
	return name
}

// NameKey returns the form of a repository's name in which two names of the same repository are
// equal. Only plain git servers distinguish case.
func NameKey(provider, name string) string {
	if clean, err := workflow.RepositoryName(provider, name); err == nil {
		name = clean
	}
	name = strings.TrimSuffix(strings.Trim(name, "/"), ".git")
	if provider == vcs.ProviderCustom {
		return name
	}
	return strings.ToLower(name)
}

package vcs

import "strings"

// The providers of integrations, as in the settings of stacks.
const (
	ProviderGitHub    = "github"
	ProviderGitLab    = "gitlab"
	ProviderBitbucket = "bitbucket"
	ProviderAzure     = "azure_devops"
	ProviderCustom    = "custom"
)

// The flavors of custom integrations. Without one, the integration is a plain git server.
const (
	FlavorGitea   = "gitea"
	FlavorForgejo = "forgejo"
	FlavorGit     = "git"
)

// Forges are the kinds of forges by their keys; see [ForgeKey].
type Forges map[string]Forge

// ForgeKey returns the key of an integration's kind of forge in [Forges]: the provider, except that
// the custom provider is [FlavorGit] or [FlavorGitea].
func ForgeKey(provider, flavor string) string {
	switch {
	case provider != ProviderCustom:
		return provider
	case flavor == FlavorGitea, flavor == FlavorForgejo:
		return FlavorGitea
	default:
		return FlavorGit
	}
}

// IsAzureID reports whether a project of an integration with Azure DevOps is the project's id, which
// does not tell the name of the project.
func IsAzureID(project string) bool {
	return len(project) == 36 && strings.Count(project, "-") == 4 && strings.Trim(project, "0123456789abcdefABCDEF-") == ""
}

// The initiators of the deployments that events cause.
const (
	InitiatorPush   = "git-push"
	InitiatorTag    = "git-tag"
	InitiatorPull   = "pull-request"
	InitiatorReview = "review-stack"
)

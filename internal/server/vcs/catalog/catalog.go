// Package catalog lists the kinds of forges that this server connects.
package catalog

import (
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/azure"
	"workflowagent/internal/server/vcs/bitbucket"
	"workflowagent/internal/server/vcs/gitea"
	"workflowagent/internal/server/vcs/github"
	"workflowagent/internal/server/vcs/gitlab"
	"workflowagent/internal/server/vcs/plain"
)

// Forges returns the kinds of forges.
func Forges() vcs.Forges {
	return vcs.Forges{
		vcs.FlavorGit:         plain.Forge{},
		vcs.FlavorGitea:       gitea.Forge{},
		vcs.ProviderGitHub:    &github.Forge{},
		vcs.ProviderGitLab:    gitlab.Forge{},
		vcs.ProviderBitbucket: bitbucket.Forge{},
		vcs.ProviderAzure:     azure.Forge{},
	}
}

// Package catalog lists the kinds of forges that this server connects.
package catalog

import (
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/azure"
	"workflowagent/internal/server/vcs/forges/bitbucket"
	"workflowagent/internal/server/vcs/forges/gitea"
	"workflowagent/internal/server/vcs/forges/github"
	"workflowagent/internal/server/vcs/forges/gitlab"
	"workflowagent/internal/server/vcs/forges/plain"
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

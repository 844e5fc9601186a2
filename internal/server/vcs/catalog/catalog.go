// Package catalog lists the kinds of forges that this server connects.
package catalog

import (
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/gitea"
	"workflowagent/internal/server/vcs/github"
	"workflowagent/internal/server/vcs/plain"
)

// Forges returns the kinds of forges.
func Forges() vcs.Forges {
	return vcs.Forges{
		vcs.FlavorGit:      plain.Forge{},
		vcs.FlavorGitea:    gitea.Forge{},
		vcs.ProviderGitHub: &github.Forge{},
	}
}

// Has reports whether the server connects a kind of forge; see [vcs.ForgeKey].
func Has(key string) bool {
	_, ok := Forges()[key]
	return ok
}

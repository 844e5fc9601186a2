// Package console serves the pages of the server for browsers. Its packages contain one family of
// pages each, and register their routes on a [page.Site].
package console

import (
	"workflowagent/internal/server/console/deployment"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
)

// Deps are the services behind the pages.
type Deps struct {
	Site        page.Options
	Stacks      *stacks.Service
	Deployments *deployments.Service
	Pools       *pools.Service
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
}

// New returns the console with all pages.
func New(d Deps) *page.Site {
	site := page.New(d.Site)
	deployment.Register(site, deployment.Deps{Deployments: d.Deployments, Stacks: d.Stacks, Pools: d.Pools, URL: d.APIURL})
	return site
}

// Serves reports whether the console serves a path. The API serves the others.
func Serves(path string) bool {
	switch first := firstSegment(path); first {
	case "api", "healthz", "readyz", "metrics", "releases", "oidc", ".well-known":
		return false
	default:
		return true
	}
}

func firstSegment(path string) string {
	for len(path) > 0 && path[0] == '/' {
		path = path[1:]
	}
	for i := range len(path) {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return path
}

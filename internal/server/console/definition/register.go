// Package definition contains the pages on which users work with what an environment contains: the editor of its definition, and
// its values.
package definition

import (
	environmentpages "workflowagent/internal/server/console/environments"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/stacks"
)

// Deps are the services behind the pages.
type Deps struct {
	environmentpages.Heads
	Opening *opening.Service
	Stacks  *stacks.Service
}

type pages struct{ Deps }

// Register registers the pages. All who belong to the organization may ask for them: the service decides what each visitor may
// do with which environment.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const (
		edit   = environmentpages.Pattern + "/" + environmentpages.Edit
		values = environmentpages.Pattern + "/" + environmentpages.Values
	)
	site.View(edit, page.Belongs, p.edit)
	site.Action(edit, page.Belongs, p.save)
	site.Action(edit+"/check", page.Belongs, p.check)
	site.Action(edit+"/complete", page.Belongs, p.complete)
	site.View(values, page.Belongs, p.values)
	site.Action(values, page.Belongs, p.open)
	site.Action(values+"/reveal", page.Belongs, p.reveal)
}

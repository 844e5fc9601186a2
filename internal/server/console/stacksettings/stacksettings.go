// Package stacksettings contains the pages with a stack's settings: deployments, schedules,
// webhooks, permissions, and the actions on the stack itself.
package stacksettings

import (
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/hooks"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/webhooks"
)

// Deps are the services behind the pages.
type Deps struct {
	stack.Heads
	Identity *identity.Service
	Stacks   *stacks.Service
	Grants   *grants.Service
	// Environments are those that the settings can name.
	Environments *environments.Service
	Triggers     *triggers.Service
	Webhooks     *webhooks.Service
	// Integrations are the connections to git hosts that triggers name.
	Integrations *integrations.Service
	Events       *dispatch.Service
	// Issuer is the URL of the server's identity tokens for clouds.
	Issuer string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const base = "/{org}/{project}/{stack}/settings"
	read, operate, manage := page.Stack(identity.StateRead), page.Stack(identity.Operate), page.Stack(identity.Manage)
	site.View(base, read, p.deploy)
	site.Action(base, operate, p.send(""))
	site.Action(base+"/save", operate, p.save)
	site.Action(base+"/clear-cache", operate, p.clearCache)
	site.View(base+"/triggers", read, p.triggers)
	site.Action(base+"/triggers", operate, p.send("triggers"))
	site.Action(base+"/triggers/approve", operate, p.approve)
	// The address of the page before it belonged to the settings.
	site.View("/{org}/{project}/{stack}/git", read, func(v *page.Visit) (view.Page, error) {
		return view.Page{}, page.GoTo(path(v.Stack, "triggers"))
	})
	site.View(base+"/schedules", read, p.schedules)
	site.Action(base+"/schedules", page.Fresh(operate), p.createSchedule)
	site.Action(base+"/schedules/{schedule}/{action}", operate, p.changeSchedule)
	hooks.Register(site, d.Webhooks, hooks.Mount{
		Pattern: base + "/webhooks", Access: manage,
		Owner: func(v *page.Visit) webhooks.Owner { return webhooks.Owner{Org: v.Org, Stack: v.Stack} },
		Path: func(v *page.Visit, more ...string) string {
			return path(v.Stack, append([]string{"webhooks"}, more...)...)
		},
		Page: func(v *page.Visit, problem string, content templ.Component) (view.Page, error) {
			return p.settingsPage(v, "webhooks", problem, content, nil)
		},
	})
	site.View(base+"/access", read, p.access)
	site.Action(base+"/access", page.Fresh(manage), p.setAccess)
	site.Action(base+"/access/grants", page.Fresh(manage), p.setGrant)
	site.View(base+"/options", read, p.options)
	site.Action(base+"/options/rename", manage, p.rename)
	site.Action(base+"/options/transfer", page.Fresh(manage), p.transfer)
	site.Action(base+"/options/delete", page.Fresh(page.Stack(identity.DeleteStack)), p.remove)
}

func path(st store.Stack, more ...string) string {
	return page.StackPath(st, append([]string{"settings"}, more...)...)
}

// settingsPage returns a page with the stack's head. part is the last segment of its path, and bar the bar of its form, or
// nil.
func (p *pages) settingsPage(v *page.Visit, part, problem string, content, bar templ.Component) (view.Page, error) {
	out, err := p.Heads.Page(v, stack.Settings)
	if err != nil {
		return out, err
	}
	out.Title, out.Object.Plain = "Settings of "+v.Stack.Project+"/"+v.Stack.Name, false
	out.Body = view.FormPage("Settings of the stack", stack.SettingsTabs(v, part), problem, content, bar)
	// A form must not change while someone fills it in.
	out.Live = nil
	return out, nil
}

// answer redirects to a part of the settings after a change, or shows it again with the problem.
func answer(v *page.Visit, err error, part string, again func(v *page.Visit, problem string) (view.Page, error)) (page.Answer, error) {
	return page.Changed(v, err, path(v.Stack, strings.Fields(part)...), again)
}

package orgsettings

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// permissions are the permissions that members can have on stacks.
var permissions = []view.Option{
	{Value: number(store.NoPermission), Text: "none", Hint: "Stacks are hidden unless access is granted."},
	{Value: number(store.ReadPermission), Text: "read", Hint: "Read stacks with their secrets, deployments and logs, and run previews."},
	{Value: number(store.WritePermission), Text: "write", Hint: "Also run updates and deployments, and change their settings."},
	{Value: number(store.AdminPermission), Text: "admin", Hint: "Also rename and delete stacks, and grant access to them."},
}

func number(p store.Permission) string { return strconv.FormatInt(int64(p), 10) }

// permission returns the permission that a form names.
func permission(v *page.Visit) (store.Permission, error) {
	n, err := strconv.ParseInt(v.Form("permission"), 10, 64)
	if err != nil {
		return 0, fault.Invalid("Choose a permission.")
	}
	return store.Permission(n), nil
}

// permissionHint says what a permission lets its holder do.
func permissionHint(p store.Permission) string {
	for _, o := range permissions {
		if o.Value == number(p) {
			return o.Hint
		}
	}
	return ""
}

func permissionName(p store.Permission) string {
	for _, o := range permissions {
		if o.Value == number(p) {
			return o.Text
		}
	}
	return number(p)
}

type generalModel struct {
	place
	Permission      store.Permission
	ProjectReads    bool
	PulumiVersion   string // in the organization, or in the refused form
	Created         time.Time
	Members, Stacks int64
	Queues          deployments.Queues
	OwnCap          bool // the limit of deployments is the organization's
	Role            string
	// Pool is the default pool; it is zero if the organization has none.
	Pool store.AgentPool
	generalProblems
}

// generalProblems are what is wrong with the forms of the page.
type generalProblems struct{ versionProblem, permissionProblem string }

func (p *pages) general(v *page.Visit) (view.Page, error) {
	return p.generalPage(v, generalProblems{})
}

func (p *pages) generalPage(v *page.Visit, problems generalProblems) (view.Page, error) {
	m := generalModel{place: at(v), Permission: v.Org.StackPermission, ProjectReads: v.Org.ProjectReads, Created: v.Org.CreatedAt, Role: v.Who.Role(v.Org.ID), OwnCap: v.Org.DeploymentQuota > 0, generalProblems: problems}
	m.PulumiVersion = cmp.Or(v.Form("version"), v.Org.PulumiVersion)
	var err error
	if m.Members, m.Stacks, err = p.Identity.Counts(v.Context(), v.Who, v.Org.ID); err != nil {
		return view.Page{}, err
	}
	if m.Queues, err = p.Deployments.Queues(v.Context(), v.Who, v.Org.ID, ""); err != nil {
		return view.Page{}, err
	}
	list, preset, err := p.Pools.List(v.Context(), v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	for _, pool := range list {
		if pool.ID == preset {
			m.Pool = pool.AgentPool
		}
	}
	return p.settingsPage(v, "", "", general(m))
}

func (p *pages) setPermission(v *page.Visit) (page.Answer, error) {
	to, err := permission(v)
	if err == nil {
		err = p.Identity.SetStackPermission(v.Context(), v.Org.ID, to)
	}
	return page.Changed(v, err, at(v).path(), func(v *page.Visit, problem string) (view.Page, error) {
		return p.generalPage(v, generalProblems{permissionProblem: problem})
	})
}

func (p *pages) setProjectReads(v *page.Visit) (page.Answer, error) {
	err := p.Identity.SetProjectReads(v.Context(), v.Org.ID, v.Form("on") != "")
	return page.Changed(v, err, at(v).path(), func(v *page.Visit, _ string) (view.Page, error) { return p.general(v) })
}

func (p *pages) setPulumiVersion(v *page.Visit) (page.Answer, error) {
	err := p.Identity.SetPulumiVersion(v.Context(), v.Org.ID, strings.TrimSpace(v.Form("version")))
	return page.Changed(v, err, at(v).path(), func(v *page.Visit, problem string) (view.Page, error) {
		return p.generalPage(v, generalProblems{versionProblem: problem})
	})
}

package policies

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// groupForm is the form for a new group.
type groupForm struct{ Name, Mode, Problem string }

type groupsModel struct {
	place
	List []policies.GroupInUse
	// Counted reports whether the visitor sees all stacks, whose numbers the page then shows.
	Counted     bool
	First, Next string
	Form        groupForm
}

func (p *pages) groups(v *page.Visit) (view.Page, error) {
	return p.groupsPage(v, groupForm{Mode: policies.Preventative})
}

func (p *pages) groupsPage(v *page.Visit, f groupForm) (view.Page, error) {
	m := groupsModel{place: at(v), Form: f}
	list, more, err := p.Policies.GroupPage(v.Context(), v.Org.ID, v.Query("after"), rows)
	if err != nil {
		return view.Page{}, err
	}
	if _, m.Counted, err = p.Estate.Numbers(v.Context(), v.Who, v.Org.ID); err != nil {
		return view.Page{}, err
	}
	m.List = list
	path, count := m.path("groups"), ""
	if v.Query("after") != "" {
		m.First = path
	}
	if more {
		m.Next = path + "?after=" + url.QueryEscape(list[len(list)-1].Name)
	}
	if m.First == "" && !more {
		count = words.Number(len(list))
	}
	bar := m.bar("groups", count)
	bar.Actions = groupsActions(m)
	return view.Page{Title: m.title("groups"), Section: section, Bar: bar, Body: groupsBody(m), Live: []view.Topic{changes(v)}}, nil
}

func (p *pages) createGroup(v *page.Visit) (page.Answer, error) {
	if err := mayChange(v); err != nil {
		return page.Answer{}, err
	}
	f := groupForm{Name: strings.TrimSpace(v.Form("name")), Mode: v.Form("mode")}
	err := p.Policies.CreateGroup(v.Context(), v.Org, policies.NewGroup{Name: f.Name, EntityType: policies.Stacks, Mode: f.Mode})
	return page.Changed(v, err, at(v).path("groups", f.Name), func(v *page.Visit, problem string) (view.Page, error) {
		f.Problem = problem
		return p.groupsPage(v, f)
	})
}

// groupForms are the forms of the page of a group, with what is wrong with them.
type groupForms struct {
	Stack, StackProblem       string
	Name, Pool, Hours         string
	EditProblem, HoursProblem string
	Problem                   string
}

type groupModel struct {
	place
	policies.GroupDetail
	groupForms
	Counted     bool
	Members     []store.MemberName
	First, Next string
	// Packs to add, and pools that evaluate.
	Candidates, Pools []view.Option
	PoolName          string
	Suggested         []string // stacks
}

func (p *pages) group(v *page.Visit) (view.Page, error) {
	return p.groupPage(v, func(*groupForms) {})
}

func (p *pages) groupPage(v *page.Visit, fill func(f *groupForms)) (view.Page, error) {
	m := groupModel{place: at(v)}
	var err error
	if m.GroupDetail, err = p.Policies.GroupDetail(v.Context(), v.Org, v.Param("group")); err != nil {
		return view.Page{}, err
	}
	if m.EntityType != policies.Stacks {
		return view.Page{}, fault.NotFound("policy group %s is for accounts of Pulumi Insights, which this server does not offer", m.Name)
	}
	m.groupForms = groupForms{Name: m.PolicyGroup.Name, Pool: m.PoolID, Hours: strconv.FormatInt(m.EvaluationHours, 10)}
	fill(&m.groupForms)
	if _, m.Counted, err = p.Estate.Numbers(v.Context(), v.Who, v.Org.ID); err != nil {
		return view.Page{}, err
	}
	project, name, _ := strings.Cut(v.Query("after"), "/")
	if m.Members, err = p.Policies.MemberNames(v.Context(), v.Who, m.PolicyGroup, [2]string{project, name}, rows+1); err != nil {
		return view.Page{}, err
	}
	path := m.path("groups", m.PolicyGroup.Name)
	if v.Query("after") != "" {
		m.First = path
	}
	if len(m.Members) > rows {
		m.Members = m.Members[:rows]
		last := m.Members[rows-1]
		m.Next = path + "?after=" + url.QueryEscape(last.Project+"/"+last.Name)
	}
	if err := p.choices(v, &m); err != nil {
		return view.Page{}, err
	}
	return view.Page{
		Title: m.PolicyGroup.Name + " · " + m.Org, Section: section,
		Object: &view.Object{Icon: "group", Name: m.PolicyGroup.Name, Badges: groupBadges(m), Facts: groupFacts(m), Actions: groupActions(m)},
		Body:   groupBody(m), Live: topics(v),
	}, nil
}

// choices reads what the forms offer, and the name of the pool.
func (p *pages) choices(v *page.Visit, m *groupModel) error {
	list, _, err := p.Pools.List(v.Context(), v.Org.ID)
	if err != nil {
		return err
	}
	text := "The organization's default"
	for _, pool := range list {
		if pool.Default {
			text = "The organization's default, " + pool.Name
		}
		if pool.ID == m.PoolID {
			m.PoolName = pool.Name
		}
	}
	m.Pools = []view.Option{{Text: text}}
	for _, pool := range list {
		m.Pools = append(m.Pools, view.Option{Value: pool.ID, Text: pool.Name})
	}
	if !m.Admin {
		return nil
	}
	if m.Suggested, err = p.Stacks.Names(v.Context(), v.Who, v.Org.ID, page.Suggested); err != nil {
		return err
	}
	packs, err := p.Policies.Packs(v.Context(), v.Org.ID, "")
	enabled := map[string]bool{}
	for _, e := range m.Packs {
		enabled[e.PackID] = true
	}
	for _, pack := range packs {
		if newest := len(pack.Versions) - 1; newest >= 0 && !enabled[pack.ID] {
			m.Candidates = append(m.Candidates, view.Option{Value: pack.Name, Text: pack.Name + " " + label(pack.Versions[newest].Tag, pack.Versions[newest].Number)})
		}
	}
	return err
}

// members says how many stacks the group has.
func (m groupModel) members() string {
	switch {
	case m.AllStacks && m.Counted:
		return "all stacks that have not left: " + words.Number(m.Stacks)
	case m.AllStacks:
		return "all stacks that have not left"
	case m.Counted:
		return words.Count(m.Stacks, "stack")
	default:
		return ""
	}
}

// evaluated says when the group evaluates its stacks without another cause.
func (m groupModel) evaluated() string {
	if m.EvaluationHours == 0 {
		return "evaluated after changes only"
	}
	return "evaluated after changes and every " + words.Count(m.EvaluationHours, "hour")
}

// changeGroup answers after a change of the group of the path. wrong puts a problem into the forms.
func (p *pages) changeGroup(v *page.Visit, next string, c policies.Change, wrong func(f *groupForms, problem string)) (page.Answer, error) {
	if err := mayChange(v); err != nil {
		return page.Answer{}, err
	}
	_, err := p.Policies.ChangeGroup(v.Context(), v.Org, v.Param("group"), []policies.Change{c})
	return page.Changed(v, err, next, func(v *page.Visit, problem string) (view.Page, error) {
		return p.groupPage(v, func(f *groupForms) { wrong(f, problem) })
	})
}

func (p *pages) editGroup(v *page.Visit) (page.Answer, error) {
	name, pool := strings.TrimSpace(v.Form("name")), v.Form("pool")
	c := policies.Change{PoolID: &pool}
	hours, invalidHours := strings.TrimSpace(v.Form("hours")), false
	if hours != "" { // only audit groups have the field
		n, err := strconv.ParseInt(hours, 10, 64)
		if err != nil {
			n = -1 // the service says what is permitted
		}
		c.EvaluationHours, invalidHours = &n, n < 0 || n > policies.MaxEvaluationHours
	}
	if name == "" { // a default group has no field for the name
		name = v.Param("group")
	} else {
		c.NewName = &name
	}
	return p.changeGroup(v, at(v).path("groups", name), c, func(f *groupForms, problem string) {
		f.Name, f.Pool, f.Hours = name, pool, hours
		if invalidHours {
			f.HoursProblem = problem
		} else {
			f.EditProblem = problem
		}
	})
}

func (p *pages) changeMember(v *page.Visit) (page.Answer, error) {
	text := strings.TrimSpace(v.Form("stack"))
	project, name, _ := strings.Cut(text, "/")
	stack := &policies.StackName{Project: project, Name: name}
	next := at(v).path("groups", v.Param("group")) + "#stacks"
	wrong := func(f *groupForms, problem string) { f.Stack, f.StackProblem = text, problem }
	if v.Form("action") == "remove" {
		was, err := p.Policies.HasStack(v.Context(), v.Org, v.Param("group"), *stack)
		if err != nil {
			return page.Answer{}, err
		}
		answer, err := p.changeGroup(v, next, policies.Change{RemoveStack: stack}, wrong)
		if !was { // another user has removed it
			return answer, err
		}
		return answer.Undo("Removed "+text+" from "+v.Param("group")+".", at(v).path("groups", v.Param("group"), "stacks"), "stack", text, "action", "add"), err
	}
	if _, _, err := p.Stacks.Find(v.Context(), v.Who, identity.StateRead, v.Org.Name, project, name); err != nil {
		return page.Changed(v, err, "", func(v *page.Visit, problem string) (view.Page, error) {
			return p.groupPage(v, func(f *groupForms) { wrong(f, problem) })
		})
	}
	return p.changeGroup(v, next, policies.Change{AddStack: stack}, wrong)
}

// chosen continues with the levels of the pack that a group is to require.
func chosen(w http.ResponseWriter, v *page.Visit) error {
	next := []string{"groups", v.Param("group")}
	if pack := v.Query("pack"); pack != "" {
		next = append(next, "packs", pack)
	}
	http.Redirect(w, v.R, at(v).path(next...), http.StatusSeeOther)
	return nil
}

func (p *pages) disablePack(v *page.Visit) (page.Answer, error) {
	return p.changeGroup(v, at(v).path("groups", v.Param("group")), policies.Change{RemovePack: &policies.PackRef{Name: v.Param("pack")}}, func(f *groupForms, problem string) {
		f.Problem = problem
	})
}

func (p *pages) deleteGroup(v *page.Visit) (page.Answer, error) {
	if err := mayChange(v); err != nil {
		return page.Answer{}, err
	}
	err := p.Policies.DeleteGroup(v.Context(), v.Org, v.Param("group"))
	return page.Changed(v, err, at(v).path("groups"), func(v *page.Visit, problem string) (view.Page, error) {
		return p.groupPage(v, func(f *groupForms) { f.Problem = problem })
	})
}

// changed says how a group has changed the configuration of a pack.
func changed(e store.EnabledPack) string {
	config, err := policies.ConfigOf(e)
	switch {
	case err != nil || len(config) == 0:
		return "levels of the pack"
	case len(config) == 1:
		return "1 policy configured"
	default:
		return words.Number(len(config)) + " policies configured"
	}
}

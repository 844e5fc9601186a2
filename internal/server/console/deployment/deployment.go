// Package deployment contains the page of one deployment.
package deployment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/joblog"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/policy"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Deps are the services behind the pages.
type Deps struct {
	Deployments *deployments.Service
	Stacks      *stacks.Service
	Pools       *pools.Service
	Results     *results.Service
	// URL is the server's address for clients, without a trailing slash.
	URL string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const stack = "/{org}/{project}/{stack}"
	const one = stack + "/deployments/{version}"
	site.View(one, page.Stack(identity.StateRead), p.show)
	site.Raw(one+"/changes", page.Stack(identity.StateRead), p.rows)
	site.Action(one+"/cancel", page.Stack(identity.Operate), p.cancel(false))
	site.Action(one+"/force-cancel", page.Fresh(page.Stack(identity.Operate)), p.cancel(true))
	site.Action(one+"/again", page.Stack(identity.Operate), p.again)
	site.Action(stack+"/pause", page.Stack(identity.Operate), p.pause(true))
	site.Action(stack+"/resume", page.Stack(identity.Operate), p.pause(false))
}

// shown is a deployment as its page shows it.
type shown struct {
	deployments.Details
	deployments.Course
	St   store.Stack
	Path string
	Now  time.Time
	// Operate reports whether the viewer may cancel and start deployments.
	Operate bool
	// Manage reports whether the viewer administers the stack.
	Manage bool
	// Fresh reports whether the viewer has signed in recently, as a forced cancellation requires.
	Fresh bool
	// SignIn is the path of a sign-in that leads back to the page.
	SignIn  string
	Verdict waiting.Verdict
	// Cause is why the deployment failed; nil if it has not.
	Cause *store.Cause
	// Tab is the current tab.
	Tab   string
	Steps []segment
	// Changes is what the newest update of the deployment changes; nil without one.
	Changes *changes.Model
	// Policy is what the policy packs of the newest update found.
	Policy policy.Run
	// Ahead are the first deployments in the queue of the pool of a queued deployment.
	Ahead []deployments.Listed
}

func deploymentPath(st store.Stack, version int64) string {
	return page.StackPath(st, "deployments", strconv.FormatInt(version, 10))
}

func (p *pages) load(v *page.Visit) (shown, error) {
	det, err := p.Deployments.GetFor(v.Context(), v.Who, v.Stack, joblog.Reference(v))
	if err != nil {
		return shown{}, err
	}
	now := time.Now()
	d := shown{
		Verdict: waiting.Judge(det.Job, det.Why, now), Tab: cmp.Or(v.Query("view"), "log"),
		Details: det, St: v.Stack, Path: deploymentPath(v.Stack, det.Version), Now: now, Operate: v.Who.Can(v.Stack, identity.Operate), Manage: v.Who.Can(v.Stack, identity.Manage),
		Fresh: v.Session.Fresh(now), SignIn: page.LoginPath(page.Here(v, deploymentPath(v.Stack, det.Version))),
	}
	if d.Cause, err = p.Deployments.Cause(v.Context(), det); err != nil {
		return d, err
	}
	if d.Course, err = p.Deployments.Course(v.Context(), v.Stack, det); err != nil {
		return d, err
	}
	d.Steps = segments(det.Job, d.Usual.Steps, now)
	if len(d.Updates) > 0 {
		u := d.Updates[0]
		d.Policy = policy.Run{Href: "?view=" + policy.Tab.Name, Preview: u.Preview, Expired: u.EventsExpired}
		d.Policy.Report, err = p.Results.Of(v.Context(), u, policy.Shown)
	}
	return d, err
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	d, err := p.load(v)
	if err != nil {
		return view.Page{}, err
	}
	return p.page(v, d)
}

func (p *pages) page(v *page.Visit, d shown) (view.Page, error) {
	out := view.Page{Title: fmt.Sprintf("%s/%s #%d", v.Stack.Project, v.Stack.Name, d.Version), Mark: d.tabMark(), Section: "deployments"}
	if !d.Job.Status.Final() || d.Job.Reason == workflow.ReasonLost {
		out.Live = []view.Topic{{Channel: deployments.Topic, About: deployments.About(v.Stack, d.ID)}}
		if d.Job.Status == workflow.StatusNotStarted {
			// What the deployment waits for might be another deployment, the queue or a pool.
			out.Live = []view.Topic{{Channel: deployments.Topic, About: v.Stack.OrgID}, {Channel: pools.Topic, About: v.Stack.OrgID}}
		}
	}
	content, err := p.content(v, &d, &out)
	if err != nil {
		return view.Page{}, err
	}
	out.Object = &view.Object{
		Mark: d.mark(), Project: v.Stack.Project, Name: v.Stack.Name, Number: fmt.Sprintf("#%d", d.Version), Href: page.StackPath(v.Stack),
		Plain: d.explains(), Badges: badge(d), Actions: actions(d), Facts: facts(d), Label: "Views",
	}
	if !d.explains() {
		out.Object.Tabs = view.ViewTabs(d.tabs(), d.Tab, "")
		out.Object.Tabs[1].Phone = true // the drawer next to the log has the changes, and links to all of them
	}
	out.Body = content
	return out, nil
}

// content returns what a tab of the page shows below the head.
func (p *pages) content(v *page.Visit, d *shown, out *view.Page) (templ.Component, error) {
	switch d.Tab {
	case "settings":
		text, err := used(d.Settings)
		curl, cli := commands(*d, p.URL)
		return settingsUsed(text, curl, cli), err
	case policy.Tab.Name:
		return policy.Section(d.Policy), nil
	case "changes":
		return p.changes(v, d, out)
	case "timeline":
		c, err := p.course(v, d, out)
		return course(*d, c), err
	default:
		d.Tab = "log"
		return p.work(v, d, out)
	}
}

// work returns the page as a work place: the cause or the reason for waiting, the steps, the log and the changes.
func (p *pages) work(v *page.Visit, d *shown, out *view.Page) (templ.Component, error) {
	out.Layout, out.Skips = view.Work, []view.Crumb{{Text: "Skip to the log", Href: "#log"}}
	try, _ := strconv.ParseInt(v.Query("try"), 10, 64) // an invalid number selects the last attempt
	log, err := joblog.Load(v.Context(), p.Deployments.Logs(), d.Job, d.Path+"/log", try, d.Now)
	if err != nil {
		return nil, err
	}
	if log.Live {
		out.Feed = joblog.Feed(p.Deployments, v.Stack, d.ID)
	}
	if err := p.follow(v, d, out); err != nil {
		return nil, err
	}
	if d.Job.Status == workflow.StatusNotStarted && d.Job.PoolID != "" {
		list, err := p.Deployments.Page(v.Context(), v.Who, v.Stack.OrgID, deployments.Query{Stage: deployments.StageQueued, PoolID: d.Job.PoolID, Limit: shownAhead})
		if err == nil {
			d.Ahead = list.Items
		} else if fault.KindOf(err) == "" { // not every visitor may see the organization's lists
			return nil, err
		}
	}
	return body(*d, log), nil
}

// shownAhead is the number of deployments of a queue that the page of one of them shows.
const shownAhead = 5

// tabs of the page, in their order.
var tabs = []view.Part{
	{Name: "log", Text: "Log"},
	{Name: "changes", Text: "Changes"},
	{Name: "timeline", Text: "Timeline"},
	{Name: "settings", Text: "Settings used"},
}

// tabs are the tabs of a deployment. Most have no policy packs.
func (d shown) tabs() []view.Part {
	if d.Policy.Empty() {
		return tabs
	}
	return slices.Insert(slices.Clone(tabs), 2, policy.Tab)
}

// explains reports whether the page begins with a cause or with a reason for waiting, in place of tabs.
func (d shown) explains() bool {
	return d.Tab == "log" && (d.failed() || d.Job.Status == workflow.StatusNotStarted)
}

// failed reports whether the deployment has failed.
func (d shown) failed() bool { return d.Cause != nil }

// mark returns the mark of the deployment's state.
func (d shown) mark() string { return view.MarkOf(d.Verdict.State) }

// tabMark returns the state that the title and the icon of the tab show.
func (d shown) tabMark() string {
	switch d.mark() {
	case view.MarkQueued:
		return "queued"
	case view.MarkRunning:
		return "run"
	case view.MarkOK:
		return "ok"
	case view.MarkFailed, view.MarkCancelled:
		return "bad"
	default:
		return ""
	}
}

// used returns the settings of a deployment as JSON without secrets.
func used(set *workflow.Settings) (string, error) {
	encoded, err := json.Marshal(set)
	if err != nil {
		return "", fmt.Errorf("encoding the settings of a deployment: %w", err)
	}
	var value any
	if err := json.Unmarshal(encoded, &value); err != nil {
		return "", fmt.Errorf("encoding the settings of a deployment: %w", err)
	}
	text, err := json.MarshalIndent(hideSecrets(value), "", "  ")
	return string(text), err
}

// hideSecrets replaces the secrets in decoded settings, whose form is {"ciphertext": …} or
// {"secret": …}.
func hideSecrets(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range []string{"ciphertext", "secret"} {
			if _, ok := v[key]; ok {
				return "[secret]"
			}
		}
		for key, member := range v {
			v[key] = hideSecrets(member)
		}
	case []any:
		for i, element := range v {
			v[i] = hideSecrets(element)
		}
	}
	return value
}

func (p *pages) cancel(force bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		d, err := p.load(v)
		if err != nil {
			return page.Answer{}, err
		}
		err = p.Deployments.Cancel(v.Context(), v.Stack, d.ID, v.Who.Name(), force)
		return page.See(d.Path), err
	}
}

func (p *pages) again(v *page.Visit) (page.Answer, error) {
	d, err := p.load(v)
	if err != nil {
		return page.Answer{}, err
	}
	o := deployments.Repetition{Initiator: deployments.InitiatorConsole, WithoutCache: v.Form("without-cache") == "on"}
	made, err := p.Deployments.Again(v.Context(), v.Who, v.Stack, d.ID, o, deployments.Repeat{})
	return page.See(deploymentPath(v.Stack, made.Version)), err
}

func (p *pages) pause(paused bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		changed, err := p.Deployments.SetPaused(v.Context(), v.Who, v.Stack, paused)
		back := page.See(page.Back(v, page.StackPath(v.Stack, "runs")))
		if !changed { // another user has done it, who must not be undone
			return back, err
		}
		text, opposite := "Paused "+v.Stack.Project+"/"+v.Stack.Name+".", "resume"
		if !paused {
			text, opposite = "Resumed "+v.Stack.Project+"/"+v.Stack.Name+".", "pause"
		}
		return back.Undo(text, page.StackPath(v.Stack, opposite)), err
	}
}

// linePath is the permalink of the line of the log with the cause, or "".
func (d shown) linePath() string {
	if d.Cause == nil || d.Cause.Line == 0 || d.Cause.Step < 0 {
		return ""
	}
	return fmt.Sprintf("%s?view=log&step=%d&try=%d#L%d", d.Path, d.Cause.Step+1, d.Job.Epoch, d.Cause.Line)
}

func timeOr(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}

// commands are the calls that start the same operation from elsewhere.
func commands(d shown, api string) (curl, cli string) {
	path := api + "/api/stacks" + page.StackPath(d.St) + "/deployments"
	curl = fmt.Sprintf(`curl -X POST -H "Authorization: token $PULUMI_ACCESS_TOKEN" -H "Content-Type: application/json" -d '{"operation":"%s"}' %s`, d.Operation, path)
	return curl, fmt.Sprintf("pulumi deployment run %s --stack %s/%s/%s", d.Operation, d.St.OrgName, d.St.Project, d.St.Name)
}

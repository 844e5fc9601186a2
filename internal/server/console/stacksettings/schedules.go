package stacksettings

import (
	"cmp"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/workflow"
)

type schedulesModel struct {
	St       store.Stack
	List     []store.Schedule
	Outcomes map[string]triggers.Outcome
	Form     scheduleForm
	Operate  bool
	Times    *triggers.Calendar
}

// scheduleForm is the form of a new schedule. Wrong is the name of the field that Problem is about.
type scheduleForm struct {
	Kind, Cron, Once, Operation, Option string
	Wrong, Problem                      string
}

func (p *pages) schedules(v *page.Visit) (view.Page, error) {
	form := scheduleForm{Kind: "drift", Cron: "0 3 * * *"}
	switch v.Query("template") {
	case "nightly":
		form = scheduleForm{Kind: "schedule", Cron: "0 2 * * *", Operation: "update"}
	case "weekend":
		form = scheduleForm{Kind: "ttl", Once: nextSaturday(time.Now()).Format(onceForm)}
	}
	return p.schedulesPage(v, form, "")
}

// onceForm is the form of the times of browsers.
const onceForm = "2006-01-02T15:04"

// nextSaturday returns the beginning of the next Saturday, in UTC.
func nextSaturday(now time.Time) time.Time {
	now = now.UTC()
	days := cmp.Or((int(time.Saturday)-int(now.Weekday())+7)%7, 7)
	return time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, time.UTC)
}

func (p *pages) schedulesPage(v *page.Visit, form scheduleForm, problem string) (view.Page, error) {
	list, err := p.Triggers.List(v.Context(), v.Stack)
	if err != nil {
		return view.Page{}, err
	}
	m := schedulesModel{St: v.Stack, List: list, Form: form, Operate: v.Who.Can(v.Stack, identity.Operate), Times: &triggers.Calendar{}}
	if m.Outcomes, err = p.Triggers.Outcomes(v.Context(), list); err != nil {
		return view.Page{}, err
	}
	return p.settingsPage(v, "schedules", problem, scheduleList(m), nil)
}

// when says when a schedule is due, in words.
func when(c store.Schedule) string {
	if c.Cron == "" {
		return "once, " + c.OnceAt.UTC().Format("2 Jan 2006 15:04")
	}
	return cmp.Or(triggers.Words(c.Cron), c.Cron)
}

// exactly says when a schedule is due, in words and as it is stored.
func exactly(c store.Schedule) string {
	text := when(c) + " UTC"
	if triggers.Words(c.Cron) != "" {
		text += " (" + c.Cron + ")"
	}
	return text
}

// next lists the next times of a schedule.
func (m schedulesModel) next(c store.Schedule) string {
	var times []string
	for _, t := range m.Times.Next(c, listedTimes) {
		times = append(times, t.UTC().Format("Mon 2 Jan 15:04"))
	}
	return strings.Join(times, ", ")
}

// listedTimes is the number of the next times that the page lists.
const listedTimes = 3

// outcome is the mark of the last result of a schedule, and its words.
func (m schedulesModel) outcome(c store.Schedule) (mark, text string) {
	o, ok := m.Outcomes[c.ID]
	switch {
	case !ok:
		return view.MarkNever, "never ran"
	case o.Status != "":
		return view.MarkOf(string(o.Status)), view.StatusWord(string(o.Status))
	case o.Result == store.ScheduleSkipped:
		return view.MarkSkipped, cmp.Or(o.Message, "skipped")
	case o.Result == store.ScheduleFailed:
		return view.MarkFailed, cmp.Or(o.Message, "failed")
	default:
		return view.MarkOK, string(o.Result)
	}
}

// operations are those that a schedule can run.
var operations = []view.Option{
	{Value: "update", Text: "update"}, {Value: "preview", Text: "preview"}, {Value: "refresh", Text: "refresh"}, {Value: "destroy", Text: "destroy"},
}

func (p *pages) createSchedule(v *page.Visit) (page.Answer, error) {
	form := scheduleForm{Kind: v.Form("kind"), Cron: v.Form("cron"), Once: v.Form("once"), Operation: v.Form("operation"), Option: v.Form("option")}
	spec, wrong, err := form.spec()
	if err == nil {
		_, err = p.Triggers.Create(v.Context(), v.Who, v.Stack, spec)
	}
	return answer(v, err, "schedules", func(v *page.Visit, problem string) (view.Page, error) {
		if wrong != "" {
			form.Wrong, form.Problem, problem = wrong, problem, ""
		}
		return p.schedulesPage(v, form, problem)
	})
}

// spec returns the schedule of a form, or what is wrong with it: the name of a field, or "", and why.
func (f scheduleForm) spec() (spec triggers.Spec, wrong string, err error) {
	spec = triggers.Spec{Kind: store.ScheduleKind(f.Kind), Cron: strings.TrimSpace(f.Cron)}
	switch spec.Kind {
	case store.DriftSchedule:
		spec.Request = triggers.DriftRequest(f.Option == "on")
	case store.TTLSchedule:
		spec.Request = triggers.TTLRequest(f.Option == "on")
		spec.Cron = ""
	case store.CustomSchedule:
		op, err := workflow.ParseOperation(f.Operation)
		if err != nil {
			return spec, "operation", fault.Invalid("%s", err)
		}
		spec.Request = &workflow.Request{Operation: op, Inherit: true}
	default:
		return spec, "", fault.Invalid("Choose what the schedule does.")
	}
	if spec.Cron != "" {
		if _, err := triggers.NextTime(spec.Cron, time.Now()); err != nil {
			return spec, "cron", err
		}
		return spec, "", nil
	}
	if spec.Kind == store.DriftSchedule {
		return spec, "cron", fault.Invalid("A schedule of drift detection needs a cron expression.")
	}
	once, err := time.Parse(onceForm, strings.TrimSpace(f.Once))
	if err != nil {
		return spec, "once", fault.Invalid("Give a time in UTC in the form %s.", onceForm)
	}
	spec.Once = once.UTC()
	if !spec.Once.After(time.Now()) {
		return spec, "once", fault.Invalid("The time is in the past.")
	}
	return spec, "", nil
}

// problem returns what is wrong with a field.
func (f scheduleForm) problem(name string) string {
	if f.Wrong != name {
		return ""
	}
	return f.Problem
}

func (p *pages) changeSchedule(v *page.Visit) (page.Answer, error) {
	ctx, id := v.Context(), v.Param("schedule")
	was, err := p.Triggers.Get(ctx, v.Stack, id)
	if err != nil {
		return page.Answer{}, err
	}
	switch action := v.Param("action"); action {
	case "pause", "resume":
		err = p.Triggers.Pause(ctx, v.Stack, id, action == "pause")
	case "delete":
		err = p.Triggers.Delete(ctx, v.Stack, id)
	default:
		err = fault.NotFound("A schedule has no action %q.", action)
	}
	if fault.KindOf(err) == fault.KindNotFound {
		return page.Answer{}, err
	}
	a, failed := answer(v, err, "schedules", func(v *page.Visit, problem string) (view.Page, error) {
		return p.schedulesPage(v, scheduleForm{Kind: "drift"}, problem)
	})
	if err != nil || v.Param("action") != "pause" || was.Paused {
		return a, failed
	}
	return a.Undo("Paused: "+triggers.Purpose(was)+".", path(v.Stack, "schedules", id, "resume")), failed
}

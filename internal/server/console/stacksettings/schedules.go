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
	St      store.Stack
	List    []store.Schedule
	Form    scheduleForm
	Operate bool
	Times   *triggers.Calendar
}

type scheduleForm struct{ Kind, Cron, Once, Operation, Option string }

func (p *pages) schedules(v *page.Visit) (view.Page, error) {
	form := scheduleForm{Kind: "drift", Cron: "0 3 * * *"}
	switch v.Query("template") {
	case "nightly":
		form = scheduleForm{Kind: "schedule", Cron: "0 2 * * *", Operation: "update"}
	case "weekend":
		form = scheduleForm{Kind: "ttl", Once: nextSaturday(time.Now()).Format("2006-01-02T15:04")}
	}
	return p.schedulesPage(v, form, "")
}

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
	return p.settingsPage(v, "schedules", problem, scheduleList(m))
}

// operations are those that a schedule can run.
var operations = []view.Option{
	{Value: "update", Text: "update"}, {Value: "preview", Text: "preview"}, {Value: "refresh", Text: "refresh"}, {Value: "destroy", Text: "destroy"},
}

func (p *pages) createSchedule(v *page.Visit) (page.Answer, error) {
	form := scheduleForm{Kind: v.Form("kind"), Cron: v.Form("cron"), Once: v.Form("once"), Operation: v.Form("operation"), Option: v.Form("option")}
	spec, err := form.spec()
	if err == nil {
		_, err = p.Triggers.Create(v.Context(), v.Who, v.Stack, spec)
	}
	return answer(v, err, "schedules", func(v *page.Visit, problem string) (view.Page, error) { return p.schedulesPage(v, form, problem) })
}

func (f scheduleForm) spec() (triggers.Spec, error) {
	spec := triggers.Spec{Kind: store.ScheduleKind(f.Kind), Cron: strings.TrimSpace(f.Cron)}
	switch spec.Kind {
	case store.DriftSchedule:
		spec.Request = triggers.DriftRequest(f.Option == "on")
	case store.TTLSchedule:
		spec.Request = triggers.TTLRequest(f.Option == "on")
		spec.Cron = ""
	case store.CustomSchedule:
		op, err := workflow.ParseOperation(f.Operation)
		if err != nil {
			return spec, fault.Invalid("%s", err)
		}
		spec.Request = &workflow.Request{Operation: op, Inherit: true}
	default:
		return spec, fault.Invalid("Choose what the schedule does.")
	}
	if spec.Kind == store.DriftSchedule && spec.Cron == "" {
		return spec, fault.Invalid("A schedule of drift detection needs a cron expression.")
	}
	if spec.Cron == "" {
		once, err := time.Parse("2006-01-02T15:04", strings.TrimSpace(f.Once))
		if err != nil {
			return spec, fault.Invalid("Give a time in UTC in the form 2006-01-02T15:04.")
		}
		spec.Once = once.UTC()
	}
	return spec, nil
}

func (p *pages) changeSchedule(v *page.Visit) (page.Answer, error) {
	ctx, id := v.Context(), v.Param("schedule")
	var err error
	switch action := v.Param("action"); action {
	case "pause", "resume":
		err = p.Triggers.Pause(ctx, v.Stack, id, action == "pause")
	case "delete":
		err = p.Triggers.Delete(ctx, v.Stack, id)
	default:
		err = fault.NotFound("A schedule has no action %q.", action)
	}
	return page.See(path(v.Stack, "schedules")), err
}

package stacksettings

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

type hooksModel struct {
	St   store.Stack
	List []webhooks.Webhook
	Form hookForm
}

type hookForm struct{ Name, URL, Format, Filters string }

func owner(v *page.Visit) webhooks.Owner { return webhooks.Owner{Org: v.Org, Stack: v.Stack} }

func (p *pages) webhooks(v *page.Visit) (view.Page, error) {
	return p.webhooksPage(v, hookForm{Format: "raw"}, "")
}

func (p *pages) webhooksPage(v *page.Visit, form hookForm, problem string) (view.Page, error) {
	list, err := p.Webhooks.List(v.Context(), owner(v))
	if err != nil {
		return view.Page{}, err
	}
	return settingsPage(v, "webhooks", problem, hookList(hooksModel{v.Stack, list, form})), nil
}

// formats are the formats of deliveries.
var formats = []view.Option{
	{Value: "raw", Text: "JSON"},
	{Value: "slack", Text: "Slack"},
	{Value: "ms_teams", Text: "Microsoft Teams"},
	{Value: webhooks.FormatDeployments, Text: "Start a deployment of another stack"},
}

func (p *pages) createWebhook(v *page.Visit) (page.Answer, error) {
	form := hookForm{Name: v.Form("name"), URL: strings.TrimSpace(v.Form("url")), Format: v.Form("format"), Filters: v.Form("filters")}
	active := true
	change := webhooks.Change{Name: &form.Name, DisplayName: &form.Name, URL: &form.URL, Format: &form.Format, Active: &active, Filters: strings.Fields(form.Filters)}
	if secret := v.Form("secret"); secret != "" {
		change.Secret = &secret
	}
	_, err := p.Webhooks.Create(v.Context(), v.Who, owner(v), change)
	return answer(v, err, "webhooks", func(v *page.Visit, problem string) (view.Page, error) { return p.webhooksPage(v, form, problem) })
}

func (p *pages) webhook(v *page.Visit) (view.Page, error) { return p.webhookPage(v, "") }

func (p *pages) webhookPage(v *page.Visit, problem string) (view.Page, error) {
	hook, err := p.Webhooks.Get(v.Context(), owner(v), v.Param("hook"))
	if err != nil {
		return view.Page{}, err
	}
	list, err := p.Webhooks.Deliveries(v.Context(), owner(v), hook.Name)
	if err != nil {
		return view.Page{}, err
	}
	return settingsPage(v, "webhooks", problem, hookView(v.Stack, hook, list)), nil
}

func (p *pages) changeWebhook(v *page.Visit) (page.Answer, error) {
	ctx, o, name := v.Context(), owner(v), v.Param("hook")
	var err error
	switch action := v.Param("action"); action {
	case "ping":
		_, err = p.Webhooks.Ping(ctx, o, name)
	case "redeliver":
		_, err = p.Webhooks.Redeliver(ctx, o, name, v.Form("delivery"))
	case "enable", "disable":
		active := action == "enable"
		_, err = p.Webhooks.Update(ctx, v.Who, o, name, webhooks.Change{Active: &active})
	case "delete":
		err = p.Webhooks.Delete(ctx, o, name)
		if err == nil {
			return page.See(path(v.Stack, "webhooks")), nil
		}
	default:
		err = fault.NotFound("A webhook has no action %q.", action)
	}
	if message, ok := problem(err); ok && fault.KindOf(err) != fault.KindNotFound {
		shown, again := p.webhookPage(v, message)
		return page.Again(shown), again
	}
	if err != nil {
		return page.Answer{}, err
	}
	return page.See(path(v.Stack, "webhooks", name)), nil
}

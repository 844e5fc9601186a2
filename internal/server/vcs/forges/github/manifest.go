package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
)

var _ vcs.Apps = (*Forge)(nil)

// manifest describes an app to the forge.
type manifest struct {
	Name        string            `json:"name,omitempty"`
	URL         string            `json:"url"`
	Hook        hookAttributes    `json:"hook_attributes"`
	Redirect    string            `json:"redirect_url"`
	Setup       string            `json:"setup_url"`
	Public      bool              `json:"public"`
	Permissions map[string]string `json:"default_permissions"`
	Events      []string          `json:"default_events"`
}

type hookAttributes struct {
	URL    string `json:"url"`
	Active bool   `json:"active"`
}

// appPermissions are the least rights of an app. The forge sends the events of merge queues only to
// apps that may read them.
var appPermissions = map[string]string{
	"metadata": "read", "contents": "read", "pull_requests": "write", "checks": "write", "statuses": "write", "merge_queues": "read",
}

// appEvents are the events of an app, besides those about its installation, which it always gets.
var appEvents = []string{"push", "pull_request", "check_run", "check_suite", "merge_group", "repository"}

// Manifest implements [vcs.Apps]. The app is private: only its owner can install it.
func (*Forge) Manifest(c vcs.Connection, a vcs.NewApp) (address, document string, err error) {
	at := "/settings/apps/new"
	if c.Owner != "" {
		at = "/organizations" + rest.Path(c.Owner) + at
	}
	encoded, err := json.Marshal(manifest{
		Name: a.Name, URL: a.Home, Hook: hookAttributes{a.Hook, a.Active}, Redirect: a.Redirect, Setup: a.Setup, Permissions: appPermissions, Events: appEvents,
	})
	if err != nil {
		return "", "", fmt.Errorf("encoding the manifest of an app: %w", err)
	}
	home, _ := addresses(c)
	return home + at + "?state=" + url.QueryEscape(a.State), string(encoded), nil
}

// Exchange implements [vcs.Apps]. The code is the only credential.
func (*Forge) Exchange(ctx context.Context, c vcs.Connection, code string) (vcs.RegisteredApp, error) {
	api, err := apiOf(c)
	if err != nil {
		return vcs.RegisteredApp{}, err
	}
	var made struct {
		ID    int64  `json:"id"`
		Name  string `json:"name"`
		Owner struct {
			Login string `json:"login"`
		} `json:"owner"`
		Key    string  `json:"pem"`
		Secret *string `json:"webhook_secret"`
	}
	if _, err := api.Send(ctx, "POST", "/app-manifests"+rest.Path(code, "conversions"), nil, &made); err != nil {
		return vcs.RegisteredApp{}, fmt.Errorf("exchanging the code for the GitHub App: %w", err)
	}
	out := vcs.RegisteredApp{ID: strconv.FormatInt(made.ID, 10), Name: made.Name, Owner: made.Owner.Login, PrivateKey: made.Key}
	if made.Secret != nil {
		out.Secret = *made.Secret
	}
	if made.ID <= 0 || made.Key == "" {
		return vcs.RegisteredApp{}, errors.New("exchanging the code for the GitHub App: the forge returned no app")
	}
	return out, nil
}

// FindApp implements [vcs.Apps].
func (f *Forge) FindApp(ctx context.Context, c vcs.Connection) (vcs.InstalledApp, error) {
	api, err := apiOf(c)
	if err != nil {
		return vcs.InstalledApp{}, err
	}
	if c.App == nil {
		return vcs.InstalledApp{}, errors.New("the integration has no GitHub App")
	}
	a, err := newApp(f, *c.App, api.Base, *api)
	if err != nil {
		return vcs.InstalledApp{}, err
	}
	var self struct {
		Slug string `json:"slug"`
	}
	if _, err := a.api.Get(ctx, "/app", &self); err != nil {
		return vcs.InstalledApp{}, fmt.Errorf("reading the GitHub App: %w", err)
	}
	pages := "/github-apps"
	home, _ := addresses(c)
	if home == cloudURL {
		pages = "/apps"
	}
	out := vcs.InstalledApp{InstallURL: home + pages + rest.Path(self.Slug, "installations", "new")}
	type installation struct {
		ID      int64 `json:"id"`
		Account *struct {
			Login string `json:"login"`
		} `json:"account"`
	}
	err = rest.Pages(ctx, a.api, "/app/installations?per_page=100", func(page []installation) (bool, error) {
		for _, i := range page {
			if i.ID > 0 && i.Account != nil && strings.EqualFold(i.Account.Login, c.Owner) {
				out.Installation = strconv.FormatInt(i.ID, 10)
				return false, nil
			}
		}
		return true, nil
	})
	return out, fault.While(err, "listing the installations of the GitHub App")
}

package integrations

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

const (
	// maxAppName is the longest name of an app that the forge accepts.
	maxAppName = 34
	// appTime is the time in which an administrator registers an app. The forge's codes live as long.
	appTime = time.Hour
	// finishTime bounds the exchange of a code, and the creation of the integration.
	finishTime = 2 * time.Minute
	// maxCode bounds the codes of the forge, and maxState the states.
	maxCode, maxState = 200, 4000
)

// AppRequest describes a GitHub App to register.
type AppRequest struct {
	Name  string
	Owner string // organization at the forge; "" for the administrator's own account
	// BaseURL is the address of a GitHub Enterprise Server, or "" for github.com.
	BaseURL string
	// Hook reports that the forge can reach this server.
	Hook bool
	// Home is the address of this server's pages, Redirect of the page that gets the code, and Setup of
	// the one after the installation.
	Home, Redirect, Setup string `json:"-"`
}

// AppForm is a form that the administrator's browser sends to the forge, with the field "manifest".
type AppForm struct {
	Address, Manifest string
}

// appState is the content of the state that the forge returns. It is encrypted for a session, so that
// only the browser that started the registration completes it.
type appState struct {
	Org, User string
	Request   AppRequest
	Until     time.Time
}

func appScope(session string) string { return "vcs-app/" + session }

// apps returns the kind of forge of GitHub Apps, and the connection of an app that is to be registered.
func (s *Service) apps(r AppRequest) (vcs.Apps, vcs.Connection, error) {
	forge, ok := s.opts.Forges[vcs.ProviderGitHub].(vcs.Apps)
	if !ok {
		return nil, vcs.Connection{}, fault.Invalid("this server does not support GitHub Apps")
	}
	return forge, vcs.Connection{BaseURL: r.BaseURL, Owner: r.Owner, Reach: s.opts.Reach}, nil
}

// StartApp returns the form that registers a GitHub App for an organization. session is the session of
// the administrator's browser.
func (s *Service) StartApp(ctx context.Context, p identity.Principal, org store.Organization, session string, r AppRequest) (AppForm, error) {
	r.Name, r.Owner = strings.TrimSpace(r.Name), strings.TrimSpace(r.Owner)
	r.BaseURL = cmp.Or(strings.TrimRight(strings.TrimSpace(r.BaseURL), "/"), hosts[vcs.ProviderGitHub])
	if err := checkText(store.VCSIntegration{Provider: vcs.ProviderGitHub, Name: r.Name, Owner: r.Owner, BaseURL: r.BaseURL}); err != nil {
		return AppForm{}, err
	}
	if r.Name == "" || len(r.Name) > maxAppName {
		return AppForm{}, fault.Invalid("the name of a GitHub App has 1 to %d characters", maxAppName)
	}
	forge, connection, err := s.apps(r)
	if err != nil {
		return AppForm{}, err
	}
	plain, err := json.Marshal(appState{Org: org.ID, User: p.User.ID, Request: r, Until: time.Now().Add(appTime)})
	if err != nil {
		return AppForm{}, fmt.Errorf("encoding the state of a registration: %w", err)
	}
	sealed, err := s.opts.Secrets.Encrypt(ctx, appScope(session), plain)
	if err != nil {
		return AppForm{}, fmt.Errorf("encrypting the state of a registration: %w", err)
	}
	address, manifest, err := forge.Manifest(connection, vcs.NewApp{
		Name: r.Name, Home: r.Home, Hook: s.HookURL(store.VCSIntegration{Provider: vcs.ProviderGitHub, AppID: "new"}), Active: r.Hook,
		Redirect: r.Redirect, Setup: r.Setup, State: base64.RawURLEncoding.EncodeToString(sealed),
	})
	return AppForm{address, manifest}, err
}

// errAppState is the same for every invalid state, so that callers do not learn why.
var errAppState = fault.Invalid("the registration was not started in this session, or more than an hour ago; start it again")

// FinishApp adds the integration of a GitHub App that was registered. The state and the code are those
// that the forge's redirect contains.
func (s *Service) FinishApp(ctx context.Context, p identity.Principal, org store.Organization, session, state, code string) (store.VCSIntegration, error) {
	var st appState
	sealed, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil || len(state) > maxState || code == "" || len(code) > maxCode {
		return store.VCSIntegration{}, errAppState
	}
	plain, err := s.opts.Secrets.Decrypt(ctx, appScope(session), sealed)
	if err != nil || json.Unmarshal(plain, &st) != nil || st.Org != org.ID || st.User != p.User.ID || time.Now().After(st.Until) {
		return store.VCSIntegration{}, errAppState
	}
	forge, connection, err := s.apps(st.Request)
	if err != nil {
		return store.VCSIntegration{}, err
	}
	// The forge returns the key only once, so it is stored even if the browser does not wait.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	app, err := forge.Exchange(ctx, connection, code)
	if err != nil {
		return store.VCSIntegration{}, forgeError(err)
	}
	c := Change{
		Name: &st.Request.Name, BaseURL: &st.Request.BaseURL, Owner: &app.Owner, AppID: &app.ID, AppKey: &app.PrivateKey,
		Settings: func(set *Settings) error {
			if !st.Request.Hook {
				set.Events = EventsPoll
			}
			return nil
		},
	}
	if app.Secret != "" {
		c.Secret = &app.Secret
	}
	i, _, err := s.Create(ctx, p, org, vcs.ProviderGitHub, c)
	if fault.KindOf(err) == fault.KindConflict {
		// The forge does not show the key again. The id of the app makes the name unique.
		name := st.Request.Name + " " + app.ID
		c.Name = &name
		i, _, err = s.Create(ctx, p, org, vcs.ProviderGitHub, c)
	}
	return i, err
}

// App is a GitHub App of an integration.
type App struct {
	Integration store.VCSIntegration
	InstallURL  string // page of the forge that installs the app; "" if it is installed
}

// CheckApp asks the forge whether the app of an integration is installed, and records it.
func (s *Service) CheckApp(ctx context.Context, org store.Organization, id string) (App, error) {
	i, err := s.Get(ctx, org, id)
	if err != nil {
		return App{}, err
	}
	if i.Provider != vcs.ProviderGitHub || i.AppID == "" {
		return App{}, fault.NotFound("the integration has no GitHub App")
	}
	if i.Installation != "" {
		return App{Integration: i}, nil
	}
	forge, _, err := s.apps(AppRequest{})
	if err != nil {
		return App{}, err
	}
	c, err := s.connection(ctx, i)
	if err != nil {
		return App{}, err
	}
	found, err := forge.FindApp(ctx, c)
	if err == nil && found.Installation == "" {
		err = s.note(ctx, id, vcs.ErrNotInstalled)
		return App{i, found.InstallURL}, err
	}
	if err != nil {
		return App{Integration: i}, errors.Join(forgeError(err), s.note(ctx, id, err))
	}
	i, _, err = s.Update(ctx, org, id, Change{Installation: &found.Installation})
	return App{Integration: i}, err
}

// note records whether a forge accepts the credentials of an integration.
func (s *Service) note(ctx context.Context, id string, err error) error {
	return s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return s.Note(tx, id, err) })
}

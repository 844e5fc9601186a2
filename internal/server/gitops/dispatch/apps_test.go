package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// Undelivered implements [vcs.Redeliverer].
func (f *forge) Undelivered(_ context.Context, since time.Time) ([]vcs.Delivery, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = append(f.since, since)
	if err := f.ask("deliveries"); err != nil {
		return nil, since, err
	}
	return f.lost, since.Add(time.Minute), nil
}

// FindApp implements [vcs.Apps]; the test registers no app.
func (f *forge) FindApp(context.Context, vcs.Connection) (vcs.InstalledApp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return vcs.InstalledApp{Installation: f.installation, InstallURL: "https://forge.test/install"}, f.ask("app")
}

func (*forge) Manifest(vcs.Connection, vcs.NewApp) (address, manifest string, err error) {
	return "", "", errors.ErrUnsupported
}

func (*forge) Exchange(context.Context, vcs.Connection, string) (vcs.RegisteredApp, error) {
	return vcs.RegisteredApp{}, errors.ErrUnsupported
}

func (s *site) encode(p vcs.Parsed) []byte {
	s.t.Helper()
	body, err := json.Marshal(p)
	s.must(err)
	return body
}

// TestLostDeliveries processes the deliveries that the forge could not hand over, each once, whatever
// later attempts bring.
func TestLostDeliveries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		secret := strings.Repeat("s", 32)
		app, _, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderGitHub, integrations.Change{
			Name: new("app"), Owner: new("o"), AppID: new("42"), Installation: new("1"), AppKey: new("key"), Secret: &secret,
		})
		s.must(err)
		s.must(s.forges.Delete(t.Context(), s.org, s.id))
		s.id = app.ID
		st := s.stack("dev", commits+","+previews)
		s.poll()
		s.forge.set(func() { s.forge.pulls[7] = open(7, two) })
		repo := vcs.RepoID{ID: "17", Name: "o/r"}
		lost := s.encode(vcs.Parsed{ID: "guid", Installation: "1", Events: []vcs.Event{{Kind: vcs.KindPull, Repo: repo, Pull: 7, Sender: vcs.Account{Name: "alice"}}}})
		other := s.encode(vcs.Parsed{ID: "other", Installation: "2", Events: []vcs.Event{{Kind: vcs.KindPull, Repo: repo, Pull: 7}}})
		s.forge.set(func() { s.forge.lost = []vcs.Delivery{{Body: []byte("not JSON")}, {Body: other}, {Body: lost}} })
		read := func() (n int) {
			s.forge.set(func() { n = len(s.forge.since) })
			return n
		}
		recovered := func() (n int) {
			events, err := s.dispatch.OfIntegration(t.Context(), s.org, s.id)
			s.must(err)
			for _, e := range events {
				if e.Source == dispatch.SourceRecovered {
					n++
				}
			}
			return n
		}
		before := read()
		s.restart()
		s.work(s.dispatch.Poll, "the lost delivery", func() bool { return read() > before && recovered() == 1 })
		s.process()
		s.wantDeployed(st, "preview 2")

		// The forge hands it over after all, and a new process reads the list again.
		out, err := s.dispatch.ReceiveApp(t.Context(), "42", vcs.Delivery{Header: map[string]string{"secret": secret}, Body: lost})
		s.must(err)
		if out.Accepted != 0 || out.Ignored != vcs.ReasonDuplicate {
			t.Errorf("the delivery after its recovery: %+v", out)
		}
		before = read()
		s.restart()
		s.work(s.dispatch.Poll, "another reading", func() bool { return read() > before })
		s.process()
		if recovered() != 1 {
			t.Errorf("recovered %d deliveries", recovered())
		}
		s.wantDeployed(st, "preview 2")
		if first, last := s.forge.since[0], s.forge.since[len(s.forge.since)-1]; !last.After(first) {
			t.Errorf("the second reading begins at %s, the first at %s", last, first)
		}
	})
}

// TestAppIsInstalled finds the installation of an app whose administrator did not return to this
// server.
func TestAppIsInstalled(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	s.interval = 10 * time.Millisecond
	s.restart()
	secret := strings.Repeat("s", 32)
	app, _, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderGitHub, integrations.Change{
		Name: new("app"), Owner: new("o"), AppID: new("42"), AppKey: new("key"), Secret: &secret,
	})
	s.must(err)
	state := func() store.VCSIntegration {
		i, err := s.forges.Get(t.Context(), s.org, app.ID)
		s.must(err)
		return i
	}
	s.work(s.dispatch.Poll, "the problem", func() bool { return strings.Contains(state().Problem, "not installed") })
	s.forge.set(func() { s.forge.installation = "5" })
	s.work(s.dispatch.Poll, "the installation", func() bool { return state().Installation == "5" && state().Problem == "" })
}

// TestShortSecret refuses a webhook secret that can be guessed.
func TestShortSecret(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	short := strings.Repeat("s", 31)
	_, _, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderGitHub, integrations.Change{
		Name: new("app"), Owner: new("o"), AppID: new("42"), AppKey: new("key"), Secret: &short,
	})
	if fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("a secret of %d characters: %v", len(short), err)
	}
}

// TestReplayOfRecoveredRerun recovers a request for another run, whose signed body then arrives in the
// form of the webhook and with another id. It must not run again.
func TestReplayOfRecoveredRerun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		secret := strings.Repeat("s", 32)
		app, _, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderGitHub, integrations.Change{
			Name: new("app"), Owner: new("o"), AppID: new("42"), Installation: new("1"), AppKey: new("key"), Secret: &secret,
		})
		s.must(err)
		s.must(s.forges.Delete(t.Context(), s.org, s.id))
		s.id, s.secret = app.ID, secret
		st := s.stack("dev", previews)
		s.put(open(7, two))
		s.forge.set(func() { s.forge.writers = []string{"5"} })
		e := vcs.Event{Kind: vcs.KindRerun, Repo: vcs.RepoID{ID: "17", Name: "o/r"}, Pull: 7, After: two, Check: "pulumi", Sender: vcs.Account{ID: "5", Name: "alice"}}
		sent := s.encode(vcs.Parsed{Installation: "1", Events: []vcs.Event{e}})
		var tree map[string]any
		s.must(json.Unmarshal(sent, &tree))
		shown, err := json.MarshalIndent(tree, "", "  ")
		s.must(err)
		s.forge.set(func() { s.forge.lost = []vcs.Delivery{{Header: map[string]string{"id": "first"}, Body: shown}} })
		s.restart()
		s.work(s.dispatch.Poll, "the recovered request", func() bool {
			events, err := s.dispatch.OfIntegration(t.Context(), s.org, s.id)
			s.must(err)
			return slices.ContainsFunc(events, func(e dispatch.Entry) bool { return e.Source == dispatch.SourceRecovered })
		})
		s.process()
		s.wantDeployed(st, "preview 2 skipped", "preview 2")
		for kind, body := range map[string][]byte{"application/json": sent, "application/x-www-form-urlencoded": []byte(url.Values{"payload": {string(sent)}}.Encode())} {
			header := map[string]string{"secret": secret, "id": kind, "content-type": kind}
			_, err = s.dispatch.ReceiveApp(t.Context(), "42", vcs.Delivery{Header: header, Body: body})
			s.must(err)
			s.process()
			s.wantDeployed(st, "preview 2 skipped", "preview 2")
			s.wantReason(st, vcs.ReasonUnchanged)
		}
	})
}

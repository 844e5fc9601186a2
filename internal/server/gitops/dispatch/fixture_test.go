package dispatch_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
	"workflowagent/internal/server/vcs/integrations"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// Commits, in the order of their history.
const (
	one   = "1111111111111111111111111111111111111111"
	two   = "2222222222222222222222222222222222222222"
	three = "3333333333333333333333333333333333333333"
	four  = "4444444444444444444444444444444444444444"
)

// forge is a forge in memory. Its deliveries are the JSON form of vcs.Parsed, signed by the secret in
// the header "secret".
type forge struct {
	mu       sync.Mutex
	repos    map[string]string // ids by name
	redirect map[string]string // new names by former ones
	refs     map[string]string
	pulls    map[int]vcs.Pull
	files    []string // of every change
	complete bool
	compared vcs.Change       // the last one
	err      error            // of all requests
	headErr  error            // of requests for the head of a ref
	filesErr error            // of requests for changed files
	findErr  map[string]error // of requests for a name
	asked    map[string]int
	writers  []string
	onHead   func()
	onPulls  func()
	// onConnect is called by each attempt to connect.
	onConnect func()
	// unlisted are the pull requests that the list does not contain, because it is too long.
	unlisted map[int]bool
	hooks    int
	hook     vcs.Hook
	// lost are the deliveries that failed, and since the times from which they were read.
	lost         []vcs.Delivery
	since        []time.Time
	installation string // of the app
	only         string // the only name with which refs are listed; "" for any
}

func newForge() *forge {
	return &forge{
		repos: map[string]string{"o/r": "17"}, refs: map[string]string{"refs/heads/main": one}, pulls: map[int]vcs.Pull{}, complete: true, asked: map[string]int{},
	}
}

func (f *forge) Verify(d vcs.Delivery, secrets [][]byte) error {
	for _, s := range secrets {
		if d.Header["secret"] == string(s) {
			return nil
		}
	}
	return vcs.ErrUnverified
}

// Parse returns the content of a body. The header "id" is not signed.
func (f *forge) Parse(d vcs.Delivery) (p vcs.Parsed, err error) {
	payload, err := hook.Payload(d)
	err = cmp.Or(err, json.Unmarshal(payload, &p))
	if id := d.Header["id"]; id != "" {
		p.ID = id
	}
	return p, err
}

func (f *forge) Connect(vcs.Connection) (vcs.Repository, error) {
	if f.onConnect != nil {
		f.onConnect()
	}
	return f, nil
}

func (f *forge) ask(what string) error {
	f.asked[what]++
	return f.err
}

func (f *forge) Find(_ context.Context, name string) (vcs.Repo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.findErr[name]; err != nil {
		return vcs.Repo{}, err
	}
	if to := f.redirect[name]; to != "" {
		name = to
	}
	for n, id := range f.repos {
		if strings.EqualFold(n, name) {
			return vcs.Repo{RepoID: vcs.RepoID{ID: id, Name: n}, CloneURL: "https://git.example/" + strings.ReplaceAll(n, " ", "%20") + ".git"}, f.ask("find")
		}
	}
	return vcs.Repo{}, errors.Join(f.ask("find"), vcs.ErrNotFound)
}

func (f *forge) Head(_ context.Context, _ vcs.RepoID, ref string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onHead != nil {
		f.onHead()
	}
	if err := cmp.Or(f.ask("head"), f.headErr); err != nil {
		return "", err
	}
	if commit, ok := f.refs[ref]; commit != "" {
		return commit, nil
	} else if ok {
		return "", vcs.ErrNotFound
	}
	for _, p := range f.pulls {
		if !p.Fork && ref == vcs.BranchPrefix+p.Source {
			return p.Head, nil
		}
	}
	return "", vcs.ErrNotFound
}

func (f *forge) Changed(_ context.Context, _ vcs.RepoID, c vcs.Change) ([]string, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compared = c
	return f.files, f.complete, cmp.Or(f.ask("changed"), f.filesErr)
}

func (f *forge) Refs(_ context.Context, repo vcs.RepoID, prefixes []string) (refs []vcs.Ref, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.only != "" && repo.Name != f.only {
		return nil, errors.Join(f.ask("refs"), vcs.ErrNotFound)
	}
	for name, commit := range f.refs {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			refs = append(refs, vcs.Ref{Name: name, Commit: commit})
		}
	}
	return refs, f.ask("refs")
}

func (f *forge) CloneAuth(context.Context, vcs.RepoID) (vcs.Credential, error) {
	return vcs.Credential{Password: "token"}, nil
}

func (f *forge) Pull(_ context.Context, _ vcs.RepoID, number int) (vcs.Pull, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pulls[number]
	if !ok {
		return p, errors.Join(f.ask("pull"), vcs.ErrNotFound)
	}
	return p, f.ask("pull")
}

func (f *forge) Pulls(context.Context, vcs.RepoID, vcs.Cursor) (all []vcs.Pull, next vcs.Cursor, err error) {
	if f.onPulls != nil {
		f.onPulls()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pulls {
		if !f.unlisted[p.Number] {
			all = append(all, p)
		}
	}
	err = f.ask("pulls")
	if err == nil && len(f.unlisted) > 0 {
		err = vcs.ErrPartial
	}
	return all, "next", err
}

func (f *forge) MayWrite(_ context.Context, _ vcs.RepoID, a vcs.Account) (bool, error) {
	return slices.Contains(f.writers, a.ID), f.err
}

func (f *forge) EnsureHook(_ context.Context, _ vcs.RepoID, h vcs.Hook) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks++
	f.hook = h
	return f.ask("hook")
}

func (f *forge) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// site is a server with an integration and its forge.
type site struct {
	t        *testing.T
	db       *store.DB
	forge    *forge
	forges   *integrations.Service
	queue    *deployments.Service
	stacks   *stacks.Service
	dispatch *dispatch.Service
	user     identity.Principal
	org      store.Organization
	id       string // of the integration
	secret   string
	sent     int
	interval time.Duration
}

func newSite(t *testing.T, db *store.DB, change integrations.Change) *site {
	t.Helper()
	s := &site{t: t, db: db, forge: newForge(), interval: time.Hour}
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	s.must(err)
	ids := identity.New(db, storetest.Log())
	token := ""
	s.must(ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
	s.user, err = ids.Authenticate(t.Context(), token)
	s.must(err)
	s.org, err = ids.Organization(t.Context(), s.user, "acme")
	s.must(err)
	s.stacks = stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
	s.forges = integrations.New(db, integrations.Options{
		Log: storetest.Log(), Secrets: secrets, Forges: vcs.Forges{vcs.ProviderGitHub: s.forge, vcs.ProviderAzure: s.forge, vcs.FlavorGit: s.forge}, ExternalURL: "https://server.test",
	})
	s.queue = deployments.New(db, deployments.Options{
		Log: storetest.Log(), Secrets: secrets, Updates: s.stacks, Pools: pools.New(db, storetest.Log()), ExternalURL: "https://server.test", Repositories: s.forges,
	})
	s.restart()
	i, secret, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderGitHub, change)
	s.must(err)
	s.id, s.secret = i.ID, secret
	return s
}

// restart replaces the service, as a new process would.
func (s *site) restart() {
	s.dispatch = dispatch.New(s.db, dispatch.Options{Log: storetest.Log(), Integrations: s.forges, Queue: s.queue, Interval: s.interval})
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// on returns the administrator with the permission on a stack.
func (s *site) on(st store.Stack) (identity.Principal, error) {
	return store.Read(s.t.Context(), s.db, func(tx *store.Tx) (identity.Principal, error) { return s.user.On(tx, st) })
}

// stack adds a stack whose settings contain triggers.
func (s *site) stack(name, triggers string) store.Stack {
	s.t.Helper()
	st, err := s.stacks.Create(s.t.Context(), s.user, stacks.NewStack{Org: s.org, Project: "proj", Name: name})
	s.must(err)
	s.settings(st, triggers)
	return st
}

func (s *site) settings(st store.Stack, triggers string) {
	s.t.Helper()
	_, err := s.queue.ReplaceSettings(s.t.Context(), s.user, st, []byte(settingsOf(triggers)), "test")
	s.must(err)
}

func settingsOf(triggers string) string {
	return fmt.Sprintf(`{"sourceContext":{"git":{"branch":"refs/heads/main"}},"vcs":{"provider":"github","repository":"o/r",%s}}`, triggers)
}

// deliver sends events with a new delivery id, or with the id of an earlier delivery if it is given.
func (s *site) deliver(id string, events ...vcs.Event) dispatch.Outcome {
	s.t.Helper()
	if s.sent++; id == "" {
		id = fmt.Sprintf("delivery-%d", s.sent)
	}
	for i := range events {
		if events[i].Repo == (vcs.RepoID{}) {
			events[i].Repo = vcs.RepoID{ID: "17", Name: "o/r"}
		}
	}
	body, err := json.Marshal(vcs.Parsed{ID: id, Events: events})
	s.must(err)
	out, err := s.dispatch.Receive(s.t.Context(), vcs.ProviderGitHub, s.id, vcs.Delivery{Header: map[string]string{"secret": s.secret}, Body: body})
	s.must(err)
	return out
}

// azure adds an integration with Azure DevOps, and a stack that watches its repository. send sends an
// event, and processes it.
func (s *site) azure(triggers string) (st store.Stack, send func(id string, e vcs.Event)) {
	s.t.Helper()
	i, secret, err := s.forges.Create(s.t.Context(), s.user, s.org, vcs.ProviderAzure, connected())
	s.must(err)
	s.id, s.forge.repos["o/p/r"] = i.ID, "18"
	st, err = s.stacks.Create(s.t.Context(), s.user, stacks.NewStack{Org: s.org, Project: "proj", Name: "dev"})
	s.must(err)
	settings := `{"sourceContext":{"git":{"branch":"main"}},"vcs":{"provider":"azure_devops","repository":"o/p/r",` + triggers + `}}`
	_, err = s.queue.ReplaceSettings(s.t.Context(), s.user, st, []byte(settings), "test")
	s.must(err)
	return st, func(id string, e vcs.Event) {
		s.t.Helper()
		e.Repo = vcs.RepoID{ID: "18", Name: cmp.Or(e.Repo.Name, "o/p/r")}
		body, err := json.Marshal(vcs.Parsed{ID: id, Events: []vcs.Event{e}})
		s.must(err)
		_, err = s.dispatch.Receive(s.t.Context(), vcs.ProviderAzure, i.ID, vcs.Delivery{Header: map[string]string{"secret": secret}, Body: body})
		s.must(err)
		s.process()
	}
}

func push(before, after string) vcs.Event {
	return vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Sender: vcs.Account{ID: "5", Name: "alice"}}
}

func pullEvent(n int) vcs.Event {
	return vcs.Event{Kind: vcs.KindPull, Pull: n, Sender: vcs.Account{Name: "alice"}}
}

// work runs a background service until done is true.
func (s *site) work(run func(context.Context) error, what string, done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s did not happen", what)
		}
		<-time.After(2 * time.Millisecond)
	}
	cancel()
	s.must(<-ended)
}

// process processes all events that are due.
func (s *site) process() {
	s.t.Helper()
	s.work(s.dispatch.Run, "the end of the events", func() bool { return s.due() == 0 })
}

func (s *site) due() (n int) {
	s.t.Helper()
	s.must(s.db.Read(s.t.Context(), func(tx *store.Tx) error {
		ids, err := tx.DueVCSEvents(tx.Now(), 1000)
		n = len(ids)
		return err
	}))
	return n
}

// poll polls all repositories once.
func (s *site) poll() {
	s.t.Helper()
	before := map[string]time.Time{} // by id
	s.must(s.db.Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
		repos, err := tx.Repos(s.id)
		for _, r := range repos {
			before[r.ID] = r.PolledAt
		}
		return errors.Join(err, tx.PollReposNow("", tx.Now()))
	}))
	s.work(s.dispatch.Poll, "a poll", func() bool {
		polled := false
		s.must(s.db.Read(s.t.Context(), func(tx *store.Tx) error {
			find, err := tx.WatchesToFind(tx.Now(), 9)
			due, err2 := tx.ReposToPoll(tx.Now(), 9)
			repos, err3 := tx.Repos(s.id)
			polled = len(find) == 0 && len(due) == 0
			for _, r := range repos {
				polled = polled && (!r.PolledAt.Equal(before[r.ID]) || r.Problem != "")
			}
			return errors.Join(err, err2, err3)
		}))
		return polled
	})
	s.process()
}

// retry makes waiting events due.
func (s *site) retry() {
	s.t.Helper()
	s.must(s.db.Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
		all, err := tx.VCSEventsOfIntegration(s.id, 100)
		for _, e := range all {
			if e.Done {
				continue
			}
			e.TryAt = tx.Now()
			err = errors.Join(err, tx.SaveVCSEvent(e))
		}
		return err
	}))
	s.process()
}

// waiting returns the number of events of the integration that have not ended.
func (s *site) waiting() (n int) {
	s.t.Helper()
	all, err := s.dispatch.OfIntegration(s.t.Context(), s.org, s.id)
	s.must(err)
	for _, e := range all {
		if !e.Done {
			n++
		}
	}
	return n
}

// deployed returns the deployments of a stack as "operation commit status", oldest first.
func (s *site) deployed(st store.Stack) []string {
	s.t.Helper()
	var out []string
	s.must(s.db.Read(s.t.Context(), func(tx *store.Tx) error {
		for v := int64(1); ; v++ {
			d, err := tx.DeploymentByVersion(st.ID, v)
			if errors.Is(err, store.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			c, err := tx.Checkout(d.ID)
			job, err2 := tx.JobOfDeployment(d.ID)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			text := string(d.Operation) + " " + c.CommitID[:1]
			if job.Status != "not-started" {
				text += " " + string(job.Status)
			}
			out = append(out, text)
		}
	}))
	return out
}

func (s *site) wantDeployed(st store.Stack, want ...string) {
	s.t.Helper()
	if got := s.deployed(st); !slices.Equal(got, want) {
		s.t.Errorf("deployments of %s: %q, want %q", st.Name, got, want)
	}
}

// reason returns the newest reason about a stack, or of the newest event if it has no decision.
func (s *site) reason(st store.Stack) vcs.Reason {
	s.t.Helper()
	all, err := s.dispatch.OfIntegration(s.t.Context(), s.org, s.id)
	s.must(err)
	if len(all) == 0 {
		return ""
	}
	for _, d := range all[0].Decisions {
		if d.StackID == st.ID {
			return vcs.Reason(d.Reason)
		}
	}
	return vcs.Reason(all[0].Reason)
}

func (s *site) wantReason(st store.Stack, want vcs.Reason) {
	s.t.Helper()
	if got := s.reason(st); got != want {
		s.t.Errorf("reason %q, want %q", got, want)
	}
}

// connected returns a change that connects the public forge with a token.
func connected() integrations.Change {
	return integrations.Change{Name: new("forge"), Token: new("token")}
}

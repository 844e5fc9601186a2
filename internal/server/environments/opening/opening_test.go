package opening

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	programs "workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// programName is the name under which the test binary is an evaluator that does what a definition says: a [script].
const programName = "evaluator-that-was-taken-over"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		serve()
		return
	}
	os.Exit(storetest.Main(m))
}

// script is a definition for the tests' evaluator.
type script struct {
	Asks   []wire.Ask
	Values wire.Values // of the result, besides the answers
	Fails  bool
}

func serve() {
	in, out := wire.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	_ = out.Encode(wire.Hello{Protocol: wire.Protocol, Sandbox: true})
	var req wire.Request
	var s script
	if in.Read(&req, wire.MaxMessage) != nil || json.Unmarshal(req.Definition, &s) != nil {
		return
	}
	result := wire.Result{Environment: &wire.Environment{Properties: wire.Values{}}}
	maps.Copy(result.Environment.Properties, s.Values)
	var answers []wire.Value
	for _, ask := range s.Asks {
		_ = out.Encode(wire.Message{Ask: &ask})
		var answer wire.Answer
		if in.Read(&answer, wire.MaxMessage) != nil {
			return
		}
		text, _ := json.Marshal(answer)
		answers = append(answers, wire.Value{Value: string(text)})
	}
	result.Environment.Properties["answers"] = wire.Value{Value: answers}
	if s.Fails {
		result = wire.Result{Error: "an error of the definition"}
	}
	_ = out.Encode(wire.Message{Result: &result})
}

// site is a server with the organizations acme, of the users ann and bob, and rival, of eve. Members of acme may read
// environments, and no stacks; ann administers it.
type site struct {
	t    *testing.T
	db   *store.DB
	ids  *identity.Service
	envs *environments.Service
	*Service
	acme, rival store.Organization
	tokens      map[string]string
}

func newSite(t *testing.T, db *store.DB) *site {
	t.Helper()
	secrets := must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32)))(t)
	s := &site{t: t, db: db, ids: identity.New(db, storetest.Log()), tokens: map[string]string{}}
	s.envs = environments.New(db, environments.Options{Log: storetest.Log(), Secrets: secrets})
	s.envs.Use(&evaluator.Evaluator{})
	program := filepath.Join(t.TempDir(), programName)
	must.OK(t, os.Symlink(must.Get(os.Executable())(t), program))
	pool := programs.New(programs.Options{Log: storetest.Log(), Program: program})
	t.Cleanup(pool.Close)
	s.Service = must.Get(New(db, Options{
		Log: storetest.Log(), Secrets: secrets, Environments: s.envs, Evaluator: pool, Providers: providers.New(providers.Options{}),
		Stacks: stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets, ExternalURL: "http://server.test"}),
	}))(t)
	must.OK(t, s.ids.Bootstrap(t.Context(), "acme", func(text string) error { s.tokens["admin"] = text; return nil }))
	s.rival = store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: time.Now(), EnvironmentPermission: store.AdminEnvironment}
	s.write(func(tx *store.Tx) (err error) {
		if err = tx.InsertOrganization(s.rival); err != nil {
			return err
		}
		if s.acme, err = tx.OrganizationByName("acme"); err != nil {
			return err
		}
		if err = tx.SetStackPermission(s.acme.ID, store.NoPermission); err != nil {
			return err
		}
		return tx.SetEnvironmentPermission(s.acme.ID, store.ReadEnvironment)
	})
	for login, role := range map[string]string{"ann": identity.RoleAdmin, "bob": identity.RoleMember, "eve": identity.RoleAdmin} {
		s.tokens[login] = must.Get(s.ids.CreateUser(t.Context(), identity.NewUser{Login: login}))(t)
		org := s.acme
		if login == "eve" {
			org = s.rival
		}
		u := s.p(login).User
		s.write(func(tx *store.Tx) error {
			return tx.InsertMember(store.Member{OrgID: org.ID, UserID: u.ID, Role: role})
		})
	}
	return s
}

func (s *site) write(do func(tx *store.Tx) error) {
	s.t.Helper()
	must.OK(s.t, s.db.Write(s.t.Context(), scope.Server(), do))
}

func (s *site) p(login string) identity.Principal {
	s.t.Helper()
	return must.Get(s.ids.Authenticate(s.t.Context(), s.tokens[login]))(s.t)
}

// add creates an environment with a definition.
func (s *site) add(login string, org store.Organization, name, definition string) store.Environment {
	s.t.Helper()
	e := must.Get(s.envs.Create(s.t.Context(), s.p(login), org, "app", name))(s.t)
	must.Get(s.envs.Update(s.t.Context(), s.p(login), e, definition, ""))(s.t)
	return must.Get(s.envs.Find(s.t.Context(), s.p(login), store.ReadEnvironment, org.Name, "app", name))(s.t)
}

func (s *site) root(org store.Organization, sc script) Root {
	s.t.Helper()
	return Root{Org: org, Definition: string(must.Get(json.Marshal(sc))(s.t))}
}

// answers opens a definition and returns what the evaluator was answered.
func (s *site) answers(login string, asks ...wire.Ask) []string {
	s.t.Helper()
	p := s.p(login)
	opened := must.Get(s.Open(s.t.Context(), p, s.root(s.acme, script{Asks: asks}), time.Hour))(s.t)
	values := must.Get(s.Session(s.t.Context(), p, s.acme.ID, "", opened.ID))(s.t)
	var list []string
	for _, v := range values.Properties["answers"].Value.([]wire.Value) {
		list = append(list, v.Value.(string))
	}
	return list
}

func environmentAsk(name string) wire.Ask {
	return wire.Ask{Environment: &wire.EnvironmentAsk{Name: name, Root: true}}
}

// TestEvaluatorAsksForWhatIsNotTheCallers has an evaluator that was taken over ask for everything that its caller may not have.
func TestEvaluatorAsksForWhatIsNotTheCallers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		s.add("eve", s.rival, "prod", "of: rival-planted")
		mine := s.add("ann", s.acme, "dev", "password: {fn::secret: acme-planted}")
		s.write(func(tx *store.Tx) error {
			return tx.InsertStack(store.Stack{ID: "st", OrgID: s.acme.ID, Project: "shop", Name: "dev", CreatedAt: tx.Now()})
		})
		ciphertext := must.Get(s.envs.Key(t.Context(), mine))(t).Encrypt([]byte("acme-planted"))
		decrypt := func(name string, root bool) wire.Ask {
			return wire.Ask{Decrypt: &wire.DecryptAsk{Environment: name, Root: root, Ciphertext: ciphertext}}
		}
		stack := wire.Ask{Open: &wire.OpenAsk{Provider: "pulumi-stacks", Inputs: wire.Values{"stacks": {Value: map[string]wire.Value{
			"a": {Value: map[string]wire.Value{"stack": {Value: "shop/dev"}}},
		}}}}}
		for name, c := range map[string]struct {
			ask  wire.Ask
			want string
		}{
			"environment of another organization":           {environmentAsk("app/prod"), "does not exist, or you may not see it"},
			"with the organization":                         {environmentAsk("rival/app/prod"), "does not name an environment"},
			"environment that the caller may only read":     {environmentAsk("app/dev"), "it needs the permission \\\"open\\\""},
			"secret of an environment that was not granted": {decrypt("app/dev", false), "does not import this environment"},
			"secret of the definition":                      {decrypt("", true), "only a stored environment"},
			"encryption":                                    {wire.Ask{Encrypt: &wire.EncryptAsk{Plaintext: []byte("x")}}, "cannot be encrypted here"},
			"unknown provider":                              {wire.Ask{Provider: &wire.ProviderAsk{Name: "gh-login"}}, "no provider \\\"gh-login\\\""},
			"provider that cannot be opened":                {wire.Ask{Open: &wire.OpenAsk{Provider: "gh-login"}}, "cannot be opened here"},
			"stack that the caller may not read":            {stack, "stack 'acme/shop/dev' does not exist, or you may not see it"},
		} {
			got := s.answers("bob", c.ask)[0]
			if !strings.Contains(got, c.want) || strings.Contains(got, "planted") {
				t.Errorf("%s: the evaluator was answered %s, want %s", name, got, c.want)
			}
		}
		if got := s.answers("ann", environmentAsk("app/dev"), decrypt("app/dev", false)); !strings.Contains(got[1], `"bytes"`) {
			t.Errorf("an administrator's evaluator was answered %q", got)
		}
		// A check without secrets decrypts none, whatever the evaluator asks.
		out := must.Get(s.Check(t.Context(), s.p("ann"), s.root(s.acme, script{Asks: []wire.Ask{environmentAsk("app/dev"), decrypt("app/dev", false), stack}}), false))(t)
		text := string(must.Get(json.Marshal(out))(t))
		if strings.Contains(text, `\"bytes\"`) || strings.Count(text, "sees no secrets") != 1 || strings.Count(text, "cannot be opened here") != 1 {
			t.Errorf("a check answered %s", text)
		}
	})
}

// TestOverrides replaces imports: those of the caller's own definition, and of environments that the caller may change.
func TestOverrides(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	s.write(func(tx *store.Tx) error { return tx.SetEnvironmentPermission(s.acme.ID, store.OpenEnvironment) })
	s.add("ann", s.acme, "base", "base")
	s.add("ann", s.acme, "prod", "prod")
	s.add("bob", s.acme, "other", "replacement")
	base, err := environments.ParseReference("app/base")
	must.OK(t, err)
	other, err := environments.ParseReference("app/other")
	must.OK(t, err)
	nested := []wire.Ask{environmentAsk("app/prod"), {Environment: &wire.EnvironmentAsk{Name: "app/base", Importer: "app/prod"}}}
	for name, c := range map[string]struct {
		login string
		asks  []wire.Ask
		want  string
	}{
		"own import":                         {"bob", []wire.Ask{environmentAsk("app/base")}, `"name":"app/other"`},
		"of an environment that bob opens":   {"bob", nested, "may replace what it imports"},
		"of one that is not imported":        {"bob", nested[1:], "does not import this environment"},
		"of an environment that ann changes": {"ann", nested, `"name":"app/other"`},
	} {
		root := s.root(s.acme, script{Asks: c.asks})
		root.Overrides = map[environments.Reference]environments.Reference{base: other}
		opened := must.Get(s.Open(t.Context(), s.p(c.login), root, time.Hour))(t)
		values := must.Get(s.Session(t.Context(), s.p(c.login), s.acme.ID, "", opened.ID))(t)
		answers := values.Properties["answers"].Value.([]wire.Value)
		if got := answers[len(answers)-1].Value.(string); !strings.Contains(got, c.want) {
			t.Errorf("%s: the evaluator was answered %s, want %s", name, got, c.want)
		}
	}
}

// TestSessionBelongsToItsToken reads a session with everything else than the token that opened it.
func TestSessionBelongsToItsToken(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		ann := s.p("ann")
		second, id, err := s.ids.CreateToken(t.Context(), identity.NewTokenSpec{Kind: store.PersonalToken, UserID: ann.User.ID, CreatedBy: ann.User.ID})
		must.OK(t, err)
		s.tokens["ann again"] = second
		root := s.root(s.acme, script{Values: wire.Values{"password": {Value: "planted-in-session", Secret: true}}})
		opened := must.Get(s.Open(t.Context(), s.p("ann again"), root, time.Hour))(t)
		read := func(login, org, environment string) error {
			_, err := s.Session(t.Context(), s.p(login), org, environment, opened.ID)
			return err
		}
		must.OK(t, read("ann again", s.acme.ID, ""))
		for login, counted := range map[string]bool{"ann": true, "ann again": true, "bob": false} {
			size, err := store.ReadOne(t.Context(), db, func(tx *store.Tx) (int64, error) {
				return tx.EnvironmentSessionBytes(s.acme.ID, s.p(login).TokenID)
			})
			if err != nil || size > 0 != counted {
				t.Errorf("the sessions of %s have %d bytes (%v)", login, size, err)
			}
		}
		for name, err := range map[string]error{
			"another token of the user": read("ann", s.acme.ID, ""),
			"another user":              read("bob", s.acme.ID, ""),
			"another organization":      read("ann again", s.rival.ID, ""),
			"another environment":       read("ann again", s.acme.ID, "app/dev"),
		} {
			if fault.KindOf(err) != fault.KindNotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, lifetime := range []time.Duration{0, -time.Hour, MaxLifetime + 1} {
			if _, err := s.Open(t.Context(), ann, root, lifetime); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("a session of %s: %v", lifetime, err)
			}
		}
		give := func(tokenID string) {
			s.write(func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE environment_sessions SET token_id = $1 WHERE id = $2", tokenID, opened.ID)
				return err
			})
		}
		give(ann.TokenID) // as one who may only change rows of the database could do
		if err := read("ann", s.acme.ID, ""); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("a row that was given to another token: %v", err)
		}
		give(id)
		must.OK(t, read("ann again", s.acme.ID, ""))
		s.write(func(tx *store.Tx) error { return tx.DeleteToken(id) })
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			_, err := tx.EnvironmentSession(s.acme.ID, "", opened.ID, id)
			return err
		})
		if fault.KindOf(err) != "" || store.IgnoreMissing(err) != nil || err == nil {
			t.Errorf("the session outlives its token: %v", err)
		}
		ended := must.Get(s.Open(t.Context(), ann, root, time.Nanosecond))(t)
		if _, err := s.Session(t.Context(), ann, s.acme.ID, "", ended.ID); fault.KindOf(err) != fault.KindNotFound {
			t.Errorf("a session that has ended: %v", err)
		}
		must.OK(t, s.Sweep(t.Context()))
	})
}

// TestTagMoves moves a revision tag between a check and an opening, and during an evaluation.
func TestTagMoves(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		ann := s.p("ann")
		e := s.add("ann", s.acme, "lib", "second: revision")
		must.OK(t, s.envs.SetVersionTag(t.Context(), ann, e, "stable", 1, true))
		root := s.root(s.acme, script{Asks: []wire.Ask{environmentAsk("app/lib@stable")}})
		out := must.Get(s.Check(t.Context(), ann, root, false))(t)
		if got := string(must.Get(json.Marshal(out.Properties))(t)); !strings.Contains(got, "app/lib@1") {
			t.Errorf("the check saw %s", got)
		}
		h := s.hostFor(ann, root, store.OpenEnvironment)
		ask := wire.EnvironmentAsk{Name: "app/lib@stable"}
		first := must.Get(h.Environment(t.Context(), ask))(t)
		must.OK(t, s.envs.SetVersionTag(t.Context(), ann, e, "stable", 2, false))
		if again := must.Get(h.Environment(t.Context(), ask))(t); first.Environment.Name != "app/lib@1" || again.Environment.Name != "app/lib@1" {
			t.Errorf("one evaluation saw %s and %s", first.Environment.Name, again.Environment.Name)
		}
		if got := s.answers("ann", environmentAsk("app/lib@stable"))[0]; !strings.Contains(got, "app/lib@2") {
			t.Errorf("the opening saw %s", got)
		}
		share := budget.New(1<<20, time.Second).Share()
		ctx := budget.With(t.Context(), share)
		for _, name := range []string{"app/lib", "app/lib@2", "app/lib@latest"} {
			must.Get(h.Environment(ctx, wire.EnvironmentAsk{Name: name}))(t)
		}
		if h.size == 0 || len(h.definitions) != 2 || share.Held() != 2*int64(h.size) {
			t.Errorf("%d definitions of %d bytes are kept, with %d bytes of the request's memory", len(h.definitions), h.size, share.Held())
		}
		h.size = maxImported
		if got := must.Get(h.Environment(ctx, wire.EnvironmentAsk{Name: "app/lib@1"}))(t); !strings.Contains(got.Error, "in all") {
			t.Errorf("one more definition: %+v", got)
		}
	})
}

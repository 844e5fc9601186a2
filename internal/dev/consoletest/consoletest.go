// Package consoletest runs whole servers in tests of the console's pages, and browses them.
package consoletest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Org is the organization of a new server, whose administrator is [identity.AdminLogin].
const Org = "acme"

// stopTimeout bounds the stop of a server.
const stopTimeout = time.Minute

// Server is a running server with its own SQLite database.
type Server struct {
	t testing.TB
	// URL is the server's address, for browsers and clients, without a trailing slash.
	URL string
	// Token is the access token of the administrator.
	Token string

	cfg    config.Config
	openDB func() (*store.DB, error)
}

// New starts a server without background work that stops when the test finishes.
func New(t testing.TB) *Server {
	t.Helper()
	return With(t, nil)
}

// At returns a server that the caller runs in another process, with the access token of its administrator. Its pages and
// its API can be used, but neither its configuration nor its database.
func At(t testing.TB, url, token string) *Server { return &Server{t: t, URL: url, Token: token} }

// Each runs a test with a server on a database of each engine. Packages that use it must call [storetest.Main].
func Each(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, New(t)) })
	t.Run("postgres", func(t *testing.T) {
		u := must.Get(url.Parse(storetest.PostgresDSN(t)))(t)
		settings := map[string]string{}
		if password, has := u.User.Password(); has { // not in arguments
			settings["database_password_file"] = filepath.Join(t.TempDir(), "password")
			must.OK(t, os.WriteFile(settings["database_password_file"], []byte(password), 0o600))
			u.User = url.User(u.User.Username())
		}
		settings["database"] = u.String()
		test(t, With(t, settings))
	})
}

// With is like [New], but it overrides settings of the server by their keys, and the server does the background work
// that has the names of work.
func With(t testing.TB, settings map[string]string, work ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	values := map[string]string{"listen": "127.0.0.1:0", "data_dir": dir, "organization": Org, "outbound_networks": "127.0.0.0/8"}
	maps.Copy(values, settings)
	cfg, err := config.Load(config.LoadOptions{Flags: values, Cwd: dir})
	if err != nil {
		t.Fatalf("configuring the server: %v", err)
	}
	s := &Server{t: t, cfg: cfg}
	s.start(t, work)
	token, err := os.ReadFile(filepath.Join(dir, "admin-token"))
	if err != nil {
		t.Fatalf("reading the first token: %v", err)
	}
	s.Token = strings.TrimSpace(string(token))
	s.openDB = sync.OnceValues(func() (*store.DB, error) {
		db, err := server.OpenDatabase(context.WithoutCancel(t.Context()), cfg, storetest.Log())
		if err == nil {
			t.Cleanup(func() { _ = db.Close() })
		}
		return db, err
	})
	return s
}

func (s *Server) start(t testing.TB, work []string) {
	t.Helper()
	running, err := server.New(t.Context(), s.cfg, "test", storetest.Log(), io.Discard)
	if err != nil {
		t.Fatalf("starting the server: %v", err)
	}
	running.Only(work...)
	s.URL = running.URL()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("stopping the server: %v", err)
			}
		case <-time.After(stopTimeout):
			t.Error("the server did not stop")
		}
	})
}

// Command runs an operation in the running server, as a command on its machine does.
func (s *Server) Command(operation, request string) {
	s.t.Helper()
	caller, closeCaller, err := server.Administer(s.t.Context(), s.cfg, "test", "", storetest.Log())
	must.OK(s.t, err)
	_, err = caller.Call(s.t.Context(), operation, []byte(request))
	if err = errors.Join(err, closeCaller()); err != nil {
		s.t.Fatalf("running %s: %v", operation, err)
	}
}

// Restored makes the organization [Org] wait for its release after a restore of the backup of 2026-11-29T14:05:00Z.
func (s *Server) Restored() {
	s.t.Helper()
	must.OK(s.t, s.DB().Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName(Org)
		if err != nil {
			return err
		}
		value, err := json.Marshal(recovery.Restored{
			Backup: time.Date(2026, 11, 29, 14, 5, 0, 0, time.UTC), Restored: tx.Now(), Prepared: true, Organizations: []recovery.Organization{{ID: org.ID}},
		})
		if err != nil {
			return err
		}
		return tx.SetInstallation(recovery.Name, value)
	}))
}

// DB returns the server's database, opened a second time like another program would, so that tests
// can write rows that no call makes. The server does not notice notifications of its transactions.
func (s *Server) DB() *store.DB {
	s.t.Helper()
	db, err := s.openDB()
	if err != nil {
		s.t.Fatalf("opening the database: %v", err)
	}
	return db
}

// AddUser creates a user with a role in [Org] and returns a personal access token of the user. If
// the role is "", the user is not a member.
func (s *Server) AddUser(login, role string) string {
	s.t.Helper()
	n := identity.NewUser{Login: login, Name: login}
	if role != "" {
		n.Org, n.Role = Org, role
	}
	token, err := identity.New(s.DB(), storetest.Log()).CreateUser(s.t.Context(), n)
	if err != nil {
		s.t.Fatalf("creating the user %s: %v", login, err)
	}
	return token
}

// AgeSessions makes all sessions older by a time.
func (s *Server) AgeSessions(by time.Duration) {
	s.t.Helper()
	err := s.DB().Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE sessions SET created_at = created_at - $1, confirmed_at = confirmed_at - $1", by.Microseconds())
		return err
	})
	if err != nil {
		s.t.Fatalf("making sessions older: %v", err)
	}
}

// API calls the API as the administrator. It encodes in as the body unless it is nil, and decodes
// the response to out unless it is nil. It fails the test unless the call succeeds.
func (s *Server) API(method, path string, in, out any) {
	s.t.Helper()
	if status, body := s.APIAs(s.Token, method, path, in, out); status >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s: status %d: %s", method, path, status, body)
	}
}

// APIAs is like [Server.API] with another token, but it returns errors of the server as the
// response's status and body. A token can begin with its scheme, such as "update-token ".
func (s *Server) APIAs(token, method, path string, in, out any) (status int, body string) {
	s.t.Helper()
	var sent io.Reader
	if in != nil {
		text := must.Get(json.Marshal(in))(s.t)
		sent = bytes.NewReader(text)
	}
	req := must.Get(http.NewRequestWithContext(s.t.Context(), method, s.URL+path, sent))(s.t)
	client := &http.Client{Timeout: time.Minute}
	if !strings.Contains(token, " ") {
		token = "token " + token
	}
	req.Header.Set("Authorization", token)
	req.Header.Set("Accept", "application/vnd.pulumi+8")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	must.OK(s.t, err)
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		s.t.Fatal(err)
	}
	if out != nil && res.StatusCode < http.StatusMultipleChoices {
		if err := json.Unmarshal(text, out); err != nil {
			s.t.Fatalf("%s %s: the response %q: %v", method, path, text, err)
		}
	}
	return res.StatusCode, string(text)
}

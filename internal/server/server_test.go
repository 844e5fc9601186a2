package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func testConfig(t *testing.T, dir string) config.Config {
	t.Helper()
	c, err := config.Load(config.LoadOptions{Flags: map[string]string{"listen": "127.0.0.1:0", "data_dir": dir, "organization": "acme"}, Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func run(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			return errors.New("the server did not stop")
		}
	}
}

func get(t *testing.T, url, token string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func TestFirstStartHandsOutATokenOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var notices bytes.Buffer
	s, err := New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	file := filepath.Join(dir, "admin-token")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the token file = %v, %v, want 0600", st.Mode(), err)
	}
	if strings.Contains(notices.String(), token) || !strings.Contains(notices.String(), "admin-token") {
		t.Error("the notices do not contain the location of the token")
	}
	if code := get(t, s.URL()+"/readyz", ""); code != 200 {
		t.Errorf("/readyz: status %d", code)
	}
	if code := get(t, s.URL()+"/api/user", token); code != 200 {
		t.Errorf("a request with the token: status %d", code)
	}

	// A second server on the same directory would corrupt the data of the first.
	if _, err := New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices); err == nil || !strings.Contains(err.Error(), "another workflow-server") {
		t.Errorf("a second server = %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}

	notices.Reset()
	s, err = New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices)
	if err != nil {
		t.Fatal(err)
	}
	stop = run(t, s)
	if notices.Len() > 0 {
		t.Errorf("the second start printed %q", notices.String())
	}
	if code := get(t, s.URL()+"/api/user", token); code != 200 {
		t.Errorf("a request with the token after a restart: status %d", code)
	}
	if err := stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

var linkPattern = regexp.MustCompile(`(?m)^  (https?://\S+)/-/login/link\?key=(\S+)$`)

// TestFirstLink checks that a server prints a link that signs the administrator in once, until an administrator
// has signed in.
func TestFirstLink(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var keys []string
	for range 2 { // the link of the second start replaces an unused one
		var notices bytes.Buffer
		s := must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices))(t)
		link := linkPattern.FindStringSubmatch(notices.String())
		if link == nil || link[1] != s.URL() || !strings.Contains(notices.String(), "10 minutes") {
			t.Fatalf("the notices are %s", notices.String())
		}
		if want := "admin sign-in admin --data-dir " + dir + "\n"; !strings.Contains(notices.String(), want) {
			t.Errorf("the notices lack %q: %s", want, notices.String())
		}
		keys = append(keys, link[2])
		if len(keys) == 1 {
			s.closeAll()
			continue
		}
		stop := run(t, s)
		use := func(key string) int {
			client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			res := must.Get(client.PostForm(s.URL()+"/-/login/link", url.Values{"key": {key}}))(t)
			_ = res.Body.Close()
			return res.StatusCode
		}
		for i, want := range []int{http.StatusSeeOther, http.StatusUnprocessableEntity} {
			if got := use(keys[1]); got != want {
				t.Errorf("use %d of the link: status %d, want %d", i+1, got, want)
			}
		}
		for name, key := range map[string]string{"a guessed link": keys[1][:len(keys[1])-1] + "x", "the link of the first start": keys[0]} {
			if got := use(key); got != http.StatusUnprocessableEntity {
				t.Errorf("%s: status %d", name, got)
			}
		}
		must.OK(t, stop())
	}
	var notices bytes.Buffer
	s := must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices))(t)
	s.closeAll()
	if notices.Len() > 0 {
		t.Errorf("after a sign-in, the server prints %s", notices.String())
	}
}

func TestLoopbackNotice(t *testing.T) {
	for _, flags := range []map[string]string{nil, {"external_url": "http://127.0.0.1:8800"}} {
		c := must.Get(configWith(t, t.TempDir(), flags))(t)
		s := must.Get(New(t.Context(), c, "v1", storetest.Log(), io.Discard))(t)
		s.closeAll()
		if want := flags == nil; (s.urlNotice != "") != want {
			t.Errorf("%v: the notice is %q", flags, s.urlNotice)
		}
	}
}

func TestCommandsCreateNoDatabase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, err := OpenExistingDatabase(t.Context(), testConfig(t, dir), storetest.Log())
	if err == nil || !strings.Contains(err.Error(), "data_dir") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was created: %v", err)
	}
}

func TestAnInterruptedFirstStartIsRepeated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "admin-token"), []byte("pul-of-a-start-that-failed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var notices bytes.Buffer
	s, err := New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), &notices)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t, s)(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "admin-token"))
	if err != nil || strings.Contains(string(text), "failed") {
		t.Errorf("the token file contains %q (%v)", text, err)
	}
}

func TestListeningEverywhereNeedsAURL(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.Listen = "0.0.0.0:0"
	if _, err := New(t.Context(), cfg, "v1", storetest.Log(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "--external-url") {
		t.Errorf("New = %v, want an error that names --external-url", err)
	}
}

func TestSubsystemsAreStartedAgain(t *testing.T) {
	db := storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		runs := 0
		supervise(ctx, storetest.Log(), db, Subsystem{Name: "x", Run: func(ctx context.Context) error {
			runs++
			switch runs {
			case 1:
				return errors.New("boom")
			case 2:
				panic("boom")
			case 3:
				return nil
			default:
				cancel()
				return ctx.Err()
			}
		}})
		if runs != 4 {
			t.Errorf("ran %d times, want 4", runs)
		}
		if d := time.Since(began); d < time.Second || d > time.Minute {
			t.Errorf("the pauses took %v", d)
		}
	})
}

// TestStartWithoutRunners checks the warning about deployments that earlier built-in runners started.
func TestStartWithoutRunners(t *testing.T) {
	dir := t.TempDir()
	logger, logged := logtest.NewNullLogger()
	start := func() *Server {
		s, err := New(t.Context(), testConfig(t, dir), "v1", logrus.NewEntry(logger), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	warnings := func() (out []*logrus.Entry) {
		for _, e := range logged.AllEntries() {
			if e.Level == logrus.WarnLevel && !strings.HasPrefix(e.Message, "workflow-esc ") { // tests have no evaluator
				out = append(out, e)
			}
		}
		return out
	}
	s := start()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		orgs, err := tx.Organizations()
		if err != nil {
			return err
		}
		org := orgs[0].ID
		if err := tx.InsertPool(store.AgentPool{ID: "pool", OrgID: org, Name: "built-in", BuiltIn: true}); err != nil {
			return err
		}
		if err := tx.InsertStack(store.Stack{ID: "stack", OrgID: org, Project: "p", Name: "s"}); err != nil {
			return err
		}
		if err := tx.InsertDeployment(store.Deployment{ID: "deployment", OrgID: org, StackID: "stack"}); err != nil {
			return err
		}
		return tx.InsertJob(store.Job{
			ID: "job", DeploymentID: "deployment", OrgID: org, StackID: "stack", PoolID: "pool", Status: workflow.StatusRunning, AgentHostname: host,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	s.closeAll()
	if got := warnings(); len(got) > 0 {
		t.Fatalf("without deployments, the server warned: %v", got[0].Message)
	}
	start().closeAll()
	if got := warnings(); len(got) != 1 || got[0].Data["deployments"] != int64(1) || !strings.Contains(got[0].Message, "start the server with --runners again") {
		t.Errorf("the server warned %d times: %+v", len(got), got)
	}
}

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/config"
)

func metricsStatus(t *testing.T, url, token string) int {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil))(t)
	req.Header.Set("Authorization", "Bearer "+token)
	res := must.Get(http.DefaultClient.Do(req))(t)
	res.Body.Close()
	return res.StatusCode
}

// TestReload changes settings of a running server, one of which needs a restart, and then loads a
// wrong configuration.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	load := func(text string) (config.Config, error) {
		text = "listen: 127.0.0.1:0\norganization: acme\n" + text
		return config.LoadText(config.LoadOptions{Cwd: dir}, "FILE", []byte(text))
	}
	logger, lines := logtest.NewNullLogger()
	s := must.Get(New(t.Context(), must.Get(load("metrics_token: before\n"))(t), "v1", logrus.NewEntry(logger), io.Discard))(t)
	stop := run(t, s)
	defer func() { must.OK(t, stop()) }()

	next := "metrics_token: after-hunter2\nlog_level: debug\njob_lost: 7m\n"
	ctx, cancel := context.WithCancel(t.Context())
	signals, done := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(done)
		s.ReloadOn(ctx, signals, func() (config.Config, error) { return load(next) })
	}()
	if before, after := metricsStatus(t, s.URL(), "before"), metricsStatus(t, s.URL(), "after-hunter2"); before != 200 || after != 403 {
		t.Errorf("before the reload: %d, %d", before, after)
	}
	signals <- syscall.SIGHUP
	signals <- syscall.SIGHUP // received when the first reload has finished
	if before, after := metricsStatus(t, s.URL(), "before"), metricsStatus(t, s.URL(), "after-hunter2"); before != 403 || after != 200 {
		t.Errorf("after the reload: %d, %d", before, after)
	}
	if logger.GetLevel() != logrus.DebugLevel {
		t.Errorf("the log has the level %s", logger.GetLevel())
	}
	cancel()
	<-done

	ctx, cancel = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() {
		defer close(done)
		s.ReloadOn(ctx, signals, func() (config.Config, error) { return config.Config{}, errors.New("FILE:1: is wrong") })
	}()
	signals <- syscall.SIGHUP
	signals <- syscall.SIGHUP
	cancel()
	<-done
	if status := metricsStatus(t, s.URL(), "after-hunter2"); status != 200 {
		t.Errorf("after a wrong configuration: %d", status)
	}

	var text strings.Builder
	for _, e := range lines.AllEntries() {
		line := must.Get(e.String())(t)
		text.WriteString(line)
	}
	for _, want := range []string{
		`settings=job_lost`, "some changed settings need a restart", `applied="metrics_token, log_level"`, "FILE:1: is wrong", "the server keeps the running one",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "hunter2") {
		t.Error("the log shows the token")
	}
}

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
)

// bare is minserver.
type bare struct {
	url     string
	http    *http.Client
	process *lab.Process
}

func (b *Bench) startBare(ctx context.Context, database string) (*bare, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	port, err := lab.FreePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	args := []string{addr, filepath.Join(dir, "data")}
	if database != "" {
		args = append(args, database)
	}
	s := &bare{url: "http://" + addr, http: newHTTP()}
	if s.process, err = lab.StartProcess(ctx, b.Bare, args, os.Environ(), filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = lab.Poll(ready, 10*time.Millisecond, func() (bool, error) {
		_, err := s.call(ready, http.MethodGet, "/ready", nil)
		return err == nil, nil
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("starting minserver: %w", err)
	}
	return s, nil
}

func (s *bare) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to the end
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text, err
}

func (s *bare) enqueue(ctx context.Context, _ int) error {
	_, err := s.call(ctx, http.MethodPost, "/enqueue", []byte("print"))
	return err
}

func (s *bare) poll(ctx context.Context, _ int) (job, error) {
	text, err := s.call(ctx, http.MethodGet, "/poll", nil)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	id, _, _ := strings.Cut(string(text), "\n")
	return &bareJob{s, id}, nil
}

func (s *bare) settle(ctx context.Context) error {
	err := lab.Poll(ctx, 5*time.Millisecond, func() (bool, error) {
		held, err := s.call(ctx, http.MethodGet, "/held", nil)
		return string(held) == "0", err
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of minserver's polls: %w", err)
	}
	return nil
}

func (s *bare) pid() int { return s.process.Pid() }

func (s *bare) close() {
	_ = s.process.Stop(syscall.SIGTERM, stopPatience)
	s.http.CloseIdleConnections()
}

type bareJob struct {
	s  *bare
	id string
}

func (j *bareJob) start(context.Context) error { return nil }

func (j *bareJob) write(ctx context.Context, text []byte) error {
	_, err := j.s.call(ctx, http.MethodPost, "/log?job="+j.id, text)
	return err
}

func (j *bareJob) finish(ctx context.Context) error {
	_, err := j.s.call(ctx, http.MethodPost, "/finish?job="+j.id, []byte("0"))
	return err
}

func (j *bareJob) read(ctx context.Context) (int64, error) {
	var n int64
	for {
		text, err := j.s.call(ctx, http.MethodGet, fmt.Sprintf("/log?job=%s&offset=%d", j.id, n), nil)
		n += int64(len(text))
		if err != nil || len(text) == 0 {
			return n, err
		}
	}
}

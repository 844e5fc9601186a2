package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
)

// yardstick is the baseline: minserver and, if started, minagent.
type yardstick struct {
	url, dir      string
	http          *http.Client
	server, agent *lab.Process
}

func (b *bench) startYardstick(ctx context.Context, agent bool) (_ *yardstick, err error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	port, err := lab.FreePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	y := &yardstick{url: "http://" + addr, dir: filepath.Join(dir, "data"), http: newClient()}
	defer func() {
		if err != nil {
			y.close()
		}
	}()
	if y.server, err = lab.StartProcess(ctx, filepath.Join(b.min, "minserver"), []string{addr, y.dir}, os.Environ(), filepath.Join(dir, "server.log")); err != nil {
		return nil, err
	}
	err = until(ctx, 5*time.Millisecond, 10*time.Second, "minserver to start", func() (bool, error) {
		_, err := call(ctx, y.http, http.MethodGet, y.url+"/ready", nil, nil)
		return err == nil, nil
	})
	if err != nil || !agent {
		return y, err
	}
	y.agent, err = b.startMinAgent(ctx, y.url, dir, 1)
	return y, err
}

func (b *bench) startMinAgent(ctx context.Context, url, dir string, slots int) (*lab.Process, error) {
	return lab.StartProcess(ctx, filepath.Join(b.min, "minagent"), []string{url, strconv.Itoa(slots)}, os.Environ(), filepath.Join(dir, "agent.log"))
}

func (y *yardstick) enqueue(ctx context.Context, command, file string) (string, error) {
	id, err := call(ctx, y.http, http.MethodPost, y.url+"/enqueue", nil, []byte("BENCH_STAMP="+file+"; "+command))
	return string(id), err
}

func (y *yardstick) finished(ctx context.Context, job string) (bool, error) {
	state, err := call(ctx, y.http, http.MethodGet, y.url+"/state?job="+job, nil, nil)
	return string(state) == "finished", err
}

// page reads the log by byte offset. next is never "", because the baseline does not report the
// log's end.
func (y *yardstick) page(ctx context.Context, job, token string) (text, next string, err error) {
	offset := 0
	if token != "" {
		if offset, err = strconv.Atoi(token); err != nil {
			return "", "", fmt.Errorf("reading the yardstick's log: %w", err)
		}
	}
	body, err := call(ctx, y.http, http.MethodGet, fmt.Sprintf("%s/log?job=%s&offset=%d", y.url, job, offset), nil, nil)
	return string(body), strconv.Itoa(offset + len(body)), err
}

func (y *yardstick) agentPID() int           { return y.agent.Pid() }
func (y *yardstick) serverPID() int          { return y.server.Pid() }
func (y *yardstick) last(file string) string { return file } // its job is a single process

func (y *yardstick) close() {
	for _, p := range []*lab.Process{y.agent, y.server} {
		if p != nil {
			_ = p.Stop(syscall.SIGTERM, stopPatience)
		}
	}
	y.http.CloseIdleConnections()
}

var _ site = (*yardstick)(nil)

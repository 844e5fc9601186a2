package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/service"
	"workflowagent/internal/termtext"
)

func (e *examination) checkConfig(context.Context) checkup.Result {
	c := e.opts.Config
	if c == nil {
		return checkup.Fail("the configuration cannot be read", "fix the reported lines, then run doctor again", checkup.Lines(e.opts.ConfigErr)...)
	}
	file := cmp.Or(c.File(), "no file, the environment alone")
	if err := c.Validate(); err != nil {
		return checkup.Fail(file+": no agent can run with this configuration", "fix the reported lines, with configure or an editor",
			append(checkup.Lines(err), c.Warnings()...)...)
	}
	if warnings := c.Warnings(); len(warnings) > 0 {
		return checkup.Warn(file, "review the reported lines", warnings...)
	}
	return checkup.OK(file)
}

func (e *examination) checkState(context.Context) checkup.Result {
	dir := e.opts.Config.StateDirectory
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := checkup.Existing(dir)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			return checkup.Fail(fmt.Sprintf("%s does not exist and cannot be created in %s: %v", dir, parent, err), "create it for the agent's user, or set state_directory")
		}
		return checkup.OK(dir + " does not exist yet and can be created")
	case err != nil:
		return checkup.Fail(fmt.Sprintf("%s cannot be examined: %v", dir, checkup.Reason(err)), "give the agent's user access to it, or set state_directory")
	case !info.IsDir():
		return checkup.Fail(dir+" is not a directory", "remove it, or set state_directory")
	case info.Mode().Perm()&0o022 != 0:
		return checkup.Fail(fmt.Sprintf("%s can be written by other users (mode %04o)", dir, info.Mode().Perm()), "run chmod 700 on it")
	}
	if stat, isStat := info.Sys().(*syscall.Stat_t); isStat && int(stat.Uid) != os.Geteuid() {
		owner := checkup.AccountOf(int(stat.Uid))
		command := "sudo -u " + cmp.Or(owner.Name, fmt.Sprintf("'#%d'", owner.UID)) + " " + service.DefaultName + " doctor"
		if file := e.opts.Config.File(); file != "" {
			command += " --config " + file
		}
		return checkup.Warn(fmt.Sprintf("%s belongs to %s, and the doctor runs as %s", dir, owner, checkup.AccountOf(os.Geteuid())),
			"another user may get different results; to run doctor as the owner: "+command)
	}
	if err := checkup.Writable(dir); err != nil {
		return checkup.Fail(fmt.Sprintf("%s is not writable: %v", dir, checkup.Reason(err)), "check for a full or read-only disk, or set state_directory")
	}
	return checkup.OK(dir + " is writable")
}

func (e *examination) checkDisk(context.Context) checkup.Result {
	return e.space(checkup.Existing(filepath.Join(e.opts.Config.StateDirectory, "file")), "the logs of jobs", "make room, or set state_directory to a larger disk")
}

func (e *examination) space(dir, what, advice string) checkup.Result {
	return checkup.Disks{Of: e.opts.Disk, Least: executor.LeastSpace}.Space(dir, what, advice)
}

// checkPort checks that the health server's port is free or used by an agent.
func (e *examination) checkPort(ctx context.Context) checkup.Result {
	addr := e.opts.Config.HTTPServerListen()
	if addr == "" {
		return checkup.Skip("http_server_port is 0, so there is no health server")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err == nil {
		_ = l.Close() // the listener has accepted no connection
		return checkup.OK(addr + " is free")
	}
	advice := "stop the program that uses the port, or set http_server_port to another one; jobs also run without the health server"
	if !errors.Is(err, syscall.EADDRINUSE) {
		return checkup.Warn(fmt.Sprintf("cannot listen on %s: %v", addr, plainNet(err)), "correct http_server_address and http_server_port; jobs also run without the health server")
	}
	health, err := askHealth(ctx, addr)
	switch {
	case err != nil:
		return checkup.Warn(addr+" is used by another program", advice)
	case health.Status != "healthy":
		for i, problem := range health.Problems {
			health.Problems[i] = termtext.OneLine(problem, 0)
		}
		return checkup.Warn(addr+" is used by an agent that reports "+termtext.OneLine(health.Status, 0), "check that agent's log", health.Problems...)
	}
	return checkup.OK(addr + " is used by a healthy agent")
}

type health struct {
	Status       string     `json:"status"`
	LastActivity *time.Time `json:"lastActivity"`
	Problems     []string   `json:"problems"`
}

func askHealth(ctx context.Context, addr string) (health, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return health{}, err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return health{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return health{}, err
	}
	defer resp.Body.Close()
	var h health
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&h); err != nil {
		return health{}, err
	}
	if h.Status == "" || h.LastActivity == nil {
		return health{}, errors.New("not the health of an agent")
	}
	return h, nil
}

func plainNet(err error) error {
	if op, isOp := errors.AsType[*net.OpError](err); isOp {
		return op.Err
	}
	return err
}

var _ Engine = (*docker.Executor)(nil)

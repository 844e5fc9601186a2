package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/cluster/layout"
)

// controlPatience is the time limit for the start or the end of a program of the cluster.
const controlPatience = time.Minute

// run starts a program in the cluster's namespaces.
func (c *Cluster) run(ctx context.Context, name string, args []string) error {
	start := layout.Start{Args: args, Env: []string{"PATH=" + layout.Path, "HOME=" + c.Dir, "TMPDIR=" + os.TempDir()}}
	body, err := json.Marshal(start)
	if err != nil {
		return err
	}
	return c.ask(ctx, http.MethodPut, name, bytes.NewReader(body))
}

// halt sends a program of the cluster a signal, and waits until it has ended.
func (c *Cluster) halt(ctx context.Context, name string, sig syscall.Signal) error {
	return c.ask(ctx, http.MethodDelete, name+"?signal="+strconv.Itoa(int(sig)), nil)
}

// runs returns an error if a program of the cluster does not run.
func (c *Cluster) runs(ctx context.Context, name string) error {
	return c.ask(ctx, http.MethodGet, name, nil)
}

func (c *Cluster) ask(ctx context.Context, method, path string, body io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://cluster/"+path, body)
	if err != nil {
		return err
	}
	resp, err := c.control.Do(req)
	if err != nil {
		return fmt.Errorf("asking the cluster's first process: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return fmt.Errorf("the cluster's first process: %s", strings.TrimSpace(string(reason)))
	}
	return nil
}

func controlClient(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", layout.Socket(dir))
		},
	}}
}

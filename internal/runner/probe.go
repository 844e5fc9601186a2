package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

// The bounds of a probe.
const (
	maxProbes    = 16
	maxProbeTime = time.Minute
	usualProbe   = 10 * time.Second
)

// proxyNames are the variables that say which proxy to use.
var proxyNames = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// RunProbe does what the launch's probe asks for and writes the report as one line to out. It
// changes the proxy of this process to the one that the agent forwards to its jobs.
func RunProbe(ctx context.Context, launch *protocol.Launch, version string, out io.Writer) error {
	for name, value := range launch.ForwardedEnv {
		if slices.Contains(proxyNames, name) {
			if err := os.Setenv(name, value); err != nil {
				return fmt.Errorf("setting %s for the probe: %w", name, err)
			}
		}
	}
	limit := time.Duration(launch.Probe.Seconds) * time.Second
	if limit <= 0 || limit > maxProbeTime {
		limit = usualProbe
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	urls := launch.Probe.URLs[:min(len(launch.Probe.URLs), maxProbes)]
	report := reach.Report{Version: version, Traces: make([]*reach.Trace, len(urls))}
	options := reach.Options{CAPEM: []byte(launch.CACertPEM), UserAgent: launch.UserAgent}
	var all sync.WaitGroup
	for i, u := range urls {
		all.Go(func() { report.Traces[i] = reach.Try(ctx, u, options) })
	}
	all.Wait()
	line, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("writing the report of the probe: %w", err)
	}
	if _, err := out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the report of the probe: %w", err)
	}
	return nil
}

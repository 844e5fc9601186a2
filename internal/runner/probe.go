package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
	"workflowagent/internal/runner/environ"
)

const (
	maxProbes    = 16
	maxProbeTime = time.Minute
	usualProbe   = 10 * time.Second
)

// RunProbe performs the launch's probe and writes the report to out as one line. It makes this
// process use the job's proxy.
func RunProbe(ctx context.Context, launch *protocol.Launch, version string, out io.Writer) error {
	if err := environ.UseProxy(launch); err != nil {
		return err
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
	all.Go(func() {
		report.Engines = reach.Engines(ctx, launch.Probe.Engines[:min(len(launch.Probe.Engines), maxProbes)])
	})
	all.Wait()
	line, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("writing the probe report: %w", err)
	}
	if _, err := out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the probe report: %w", err)
	}
	return nil
}

// Package state measures the state backend: the stock CLI with our server, with its own file backend,
// and with the engine alone, which writes the state once.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
)

// comparison is a site, and CLIs for it, for files and for the engine alone.
type comparison struct {
	*site.Site
	server, files, engine *cli
}

func newComparison(ctx context.Context, run *figures.Run, n int) (_ *comparison, err error) {
	s, err := site.Start(ctx, run, site.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	c := &comparison{Site: s}
	all, err := newCLIs(ctx, run, n)
	if err != nil {
		return nil, err
	}
	if c.server, err = all.forSite(s); err != nil {
		return nil, err
	}
	if c.files, err = all.forFiles(); err != nil {
		return nil, err
	}
	c.engine = c.files.with(engineAlone())
	return c, nil
}

// Up creates many resources with the CLI's defaults, in the server and in the file backend.
// [Operations] has the settings of a deployment, and the engine alone.
func Up(ctx context.Context, run *figures.Run) error {
	n := figures.Pick(run, 1000, 200)
	c, err := newComparison(ctx, run, n)
	if err != nil {
		return err
	}
	defer c.Close()
	var server, files, cpu []float64
	missing := 0.0
	for round := range run.Rounds {
		stack := fmt.Sprintf("up%d", round)
		if err := c.server.init(ctx, stack); err != nil {
			return err
		}
		took, used, err := c.Timed(ctx, func() error {
			_, err := c.server.up(ctx, stack, false)
			return err
		})
		if err != nil {
			return err
		}
		_, stashes, err := export(ctx, c.Site, stack)
		if err != nil {
			return err
		}
		other, err := c.files.up(ctx, stack+"-files", true)
		if err != nil {
			return err
		}
		server, cpu, files = append(server, took), append(cpu, used), append(files, other)
		missing += math.Abs(float64(n - stashes))
		run.Say("  round %d: server %.1f s, files %.1f s, server CPU %.2f s", round+1, took, other, used)
	}
	run.Compare(fmt.Sprintf("up of %d; file backend", n), "s", server, files, figures.RatioAtMost(1.0/3, false))
	run.Add("CPU of the server", "s", cpu, figures.AtMost(figures.Pick(run, 3, 0.6), true))
	run.Add("resources missing in the stored state", "resources", []float64{missing}, figures.AtMost(0, true))
	return nil
}

// export returns the size of a stack's state as JSON, and the number of its resources.
func export(ctx context.Context, s *site.Site, stack string) (size, stashes int, err error) {
	resp, err := s.Send(ctx, http.MethodGet, s.StackPath(stack)+"/export", nil, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, fmt.Errorf("reading a state: %w", err)
	}
	var state struct {
		Deployment struct{ Resources []struct{ Type string } }
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return 0, 0, fmt.Errorf("reading a state: %w", err)
	}
	for _, resource := range state.Deployment.Resources {
		if resource.Type == site.StashType {
			stashes++
		}
	}
	return len(data), stashes, nil
}

func last(samples []float64) float64 { return samples[len(samples)-1] }

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

// setting contains the environment and arguments of the CLI for one comparison.
type setting struct {
	name    string
	env     []string
	args    []string
	files   float64 // limit of the ratio to the file backend; 0 = it is not compared
	engine  float64 // limit of the ratio to the engine alone; 0 = no limit
	samples []float64
	cpu     []float64
}

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

// Up creates many resources in new stacks, with each backend in turn.
func Up(ctx context.Context, run *figures.Run) error {
	n := figures.Pick(run, 1000, 200)
	c, err := newComparison(ctx, run, n)
	if err != nil {
		return err
	}
	defer c.Close()
	settings := []*setting{
		{name: "CLI defaults", files: 1.0 / 3},
		{name: "batch period 2 ms", env: fast(), files: 0.1, engine: 1.5},
		{name: "--parallel 100", args: []string{"--parallel=100"}, engine: 1.5},
	}
	var files, engine []float64
	missing := 0.0
	for round := range run.Rounds {
		for i, s := range settings {
			stack := fmt.Sprintf("up%d-%d", round, i)
			lost, err := c.up(ctx, s, stack, n)
			if err != nil {
				return err
			}
			missing += lost
			run.Say("  round %d, %s: %.1f s, server CPU %.2f s", round+1, s.name, last(s.samples), last(s.cpu))
		}
		for _, other := range []struct {
			name string
			cli  *cli
			into *[]float64
		}{{"files", c.files, &files}, {"engine", c.engine, &engine}} {
			took, err := other.cli.up(ctx, fmt.Sprintf("up%d-%s", round, other.name), true)
			if err != nil {
				return err
			}
			*other.into = append(*other.into, took)
		}
	}
	for _, s := range settings {
		what := fmt.Sprintf("up of %d, %s; ", n, s.name)
		if s.files > 0 {
			run.Compare(what+"file backend", "s", s.samples, files, figures.RatioAtMost(s.files, false))
		}
		goal := figures.Goal{}
		if s.engine > 0 {
			goal = figures.RatioAtMost(s.engine, false)
		}
		run.Compare(what+"engine without checkpoints", "s", s.samples, engine, goal)
		run.Add("CPU of the server", "s", s.cpu, figures.AtMost(figures.Pick(run, 3, 0.6), true))
	}
	run.Add("resources missing in the stored state", "resources", []float64{missing}, figures.AtMost(0, true))
	return nil
}

// up runs pulumi up on a new stack, and returns the number of resources that its state lacks.
func (c *comparison) up(ctx context.Context, s *setting, stack string, n int) (missing float64, err error) {
	if err := c.server.init(ctx, stack); err != nil {
		return 0, err
	}
	took, used, err := c.Timed(ctx, func() error {
		_, err := c.server.with(s.env).up(ctx, stack, false, s.args...)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.samples, s.cpu = append(s.samples, took), append(s.cpu, used)
	_, stashes, err := export(ctx, c.Site, stack)
	return math.Abs(float64(n - stashes)), err
}

const stashType = "pulumi:index:Stash"

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
		if resource.Type == stashType {
			stashes++
		}
	}
	return len(data), stashes, nil
}

func last(samples []float64) float64 { return samples[len(samples)-1] }

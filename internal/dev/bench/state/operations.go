package state

import (
	"context"
	"errors"
	"fmt"
	"math"

	"workflowagent/internal/dev/bench/figures"
)

// operation is a command on a stack. The first operation creates the stack's resources.
type operation struct {
	name string
	args []string
}

func operations() []operation {
	return []operation{
		{"up", []string{"up", "--yes", "--skip-preview"}},
		{"up without changes", []string{"up", "--yes", "--skip-preview"}},
		{"preview", []string{"preview"}},
		{"refresh", []string{"refresh", "--yes", "--skip-preview"}},
		{"destroy", []string{"destroy", "--yes", "--skip-preview"}},
	}
}

// size holds the samples of stacks of one size, in seconds by operation.
type size struct {
	n                 int
	wall, engine, cpu map[string][]float64
	peak              float64 // the server's peak memory use in MB
	wrong             float64 // number of resources missing after up or remaining after destroy
}

// Operations runs each operation on stacks of two sizes, with the server and with the engine alone.
func Operations(ctx context.Context, run *figures.Run) error {
	small, err := operate(ctx, run, figures.Pick(run, 1000, 50), run.Rounds)
	if err != nil {
		return err
	}
	large, err := operate(ctx, run, figures.Pick(run, 5000, 200), min(run.Rounds, 2)) // a round takes minutes
	if err != nil {
		return err
	}
	for _, s := range []size{small, large} {
		for _, o := range operations() {
			run.Compare(fmt.Sprintf("%s of %d; engine without checkpoints", o.name, s.n), "s", s.wall[o.name], s.engine[o.name], figures.RatioAtMost(1.5, false))
		}
	}
	for _, o := range operations() {
		run.Compare(fmt.Sprintf("%s of %d, CPU of the server per resource; of %d", o.name, large.n, small.n), "ms",
			perResource(large.cpu[o.name], large.n), perResource(small.cpu[o.name], small.n), figures.RatioAtMost(figures.Pick(run, 1.2, 2), true))
	}
	run.Add(fmt.Sprintf("peak RSS of the server with %d", large.n), "MB", []float64{large.peak}, figures.AtMost(150, true))
	run.Add("resources missing after up or left after destroy", "resources", []float64{small.wrong + large.wrong}, figures.AtMost(0, true))
	return nil
}

// perResource returns milliseconds per resource.
func perResource(seconds []float64, n int) []float64 {
	var out []float64
	for _, s := range seconds {
		out = append(out, s*1000/float64(n))
	}
	return out
}

// operate measures the operations on stacks of n resources. It starts a new server, so that
// the server's peak memory reflects only this n.
func operate(ctx context.Context, run *figures.Run, n, rounds int) (size, error) {
	s := size{n: n, wall: map[string][]float64{}, engine: map[string][]float64{}, cpu: map[string][]float64{}}
	c, err := newComparison(ctx, run, n)
	if err != nil {
		return s, err
	}
	defer c.Close()
	for round := range rounds {
		stack := fmt.Sprintf("ops%d", round)
		if err := errors.Join(c.server.init(ctx, stack), c.engine.init(ctx, alone(stack))); err != nil {
			return s, err
		}
		for _, o := range operations() {
			if err := c.operate(ctx, o, stack, &s); err != nil {
				return s, err
			}
			run.Say("  round %d, %s of %d: server %.1f s, engine %.1f s, server CPU %.2f s", round+1, o.name, n,
				last(s.wall[o.name]), last(s.engine[o.name]), last(s.cpu[o.name]))
		}
	}
	_, s.peak, err = c.Memory()
	return s, err
}

// alone returns the name of the engine's stack. The settings of all stacks are next to the program, so
// a name must not be used with two backends.
func alone(stack string) string { return stack + "-alone" }

func (c *comparison) operate(ctx context.Context, o operation, stack string, s *size) error {
	took, used, err := c.Timed(ctx, func() error {
		_, err := c.server.with(fast()).on(ctx, stack, o.args...)
		return err
	})
	if err != nil {
		return err
	}
	engine, err := c.engine.on(ctx, alone(stack), o.args...)
	if err != nil {
		return err
	}
	s.wall[o.name], s.cpu[o.name] = append(s.wall[o.name], took), append(s.cpu[o.name], used)
	s.engine[o.name] = append(s.engine[o.name], engine)
	if o.name != "up" && o.name != "destroy" {
		return nil
	}
	wanted := 0
	if o.name == "up" {
		wanted = s.n
	}
	_, stashes, err := export(ctx, c.Site, stack)
	s.wrong += math.Abs(float64(wanted - stashes))
	return err
}

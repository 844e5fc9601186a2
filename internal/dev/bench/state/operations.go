package state

import (
	"context"
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

// size holds the samples of stacks of one size.
type size struct {
	n      int
	server samples
	stub   samples
	cpu    map[string][]float64 // the server's CPU seconds by operation
	peak   []float64            // the server's peak memory use in MB
	wrong  float64              // number of resources missing after up or remaining after destroy
}

// Operations runs each operation on stacks of two sizes, with the server and with the stub.
func (b *Bench) Operations(ctx context.Context) error {
	small, err := b.operate(ctx, pick(b, 1000, 50), b.Rounds)
	if err != nil {
		return err
	}
	large, err := b.operate(ctx, pick(b, 5000, 200), min(b.Rounds, 2)) // a round takes minutes
	if err != nil {
		return err
	}
	for _, s := range []size{small, large} {
		for _, o := range operations() {
			b.Add(fmt.Sprintf("%s of %d; stub", o.name, s.n), "s", s.server.wall[o.name], s.stub.wall[o.name], figures.RatioAtMost(1.3, false))
		}
	}
	for _, o := range operations() {
		b.Add(fmt.Sprintf("%s of %d, per resource; of %d", o.name, large.n, small.n), "ms",
			each(large.server.wall[o.name], large.n), each(small.server.wall[o.name], small.n), figures.RatioAtMost(1.2, false))
	}
	for _, o := range operations() {
		b.Add(fmt.Sprintf("%s of %d, CPU of the server per resource; of %d", o.name, large.n, small.n), "ms",
			each(large.cpu[o.name], large.n), each(small.cpu[o.name], small.n), figures.RatioAtMost(pick(b, 1.2, 2), true))
	}
	b.Add(fmt.Sprintf("peak RSS of the server with %d", large.n), "MB", large.peak, nil, figures.AtMost(150, true))
	b.Add("resources missing after up or left after destroy", "resources", []float64{small.wrong + large.wrong}, nil, figures.AtMost(0, true))
	return nil
}

// each returns milliseconds per resource.
func each(seconds []float64, n int) []float64 {
	var out []float64
	for _, s := range seconds {
		out = append(out, s*1000/float64(n))
	}
	return out
}

// operate measures the operations on stacks of n resources. It starts a new server, so that
// the server's peak memory reflects only this n.
func (b *Bench) operate(ctx context.Context, n, rounds int) (size, error) {
	s := size{n: n, server: newSamples(), stub: newSamples(), cpu: map[string][]float64{}}
	u, err := b.newComparison(ctx, n)
	if err != nil {
		return s, err
	}
	defer u.close()
	for round := range rounds {
		stack := fmt.Sprintf("ops%d", round)
		if err := u.product.newStack(ctx, stack); err != nil {
			return s, err
		}
		for _, o := range operations() {
			if err := u.operate(ctx, o, stack, &s); err != nil {
				return s, err
			}
			b.Say("  round %d, %s of %d: server %.1f s, stub %.1f s, server CPU %.2f s", round+1, o.name, n,
				last(s.server.wall[o.name]), last(s.stub.wall[o.name]), last(s.cpu[o.name]))
		}
	}
	peak, err := u.product.peak()
	s.peak = append(s.peak, peak)
	return s, err
}

func (u *comparison) operate(ctx context.Context, o operation, stack string, s *size) error {
	before, err := u.product.rested(ctx)
	if err != nil {
		return err
	}
	used, err := u.sides["server"].cli.with(fast()).on(ctx, stack, o.args...)
	if err != nil {
		return err
	}
	s.server.add(o.name, used)
	after, err := u.product.rested(ctx)
	if err != nil {
		return err
	}
	s.cpu[o.name] = append(s.cpu[o.name], after-before)
	if used, err = u.sides["stub"].cli.with(fast()).on(ctx, stack, o.args...); err != nil {
		return err
	}
	s.stub.add(o.name, used)
	switch o.name {
	case "up":
		if err := u.stub.prime(ctx, u.product, stack); err != nil {
			return err
		}
		fallthrough
	case "destroy":
		state, err := u.product.export(ctx, stack)
		if err != nil {
			return err
		}
		wanted := 0
		if o.name == "up" {
			wanted = s.n
		}
		s.wrong += math.Abs(float64(wanted - state.stashes))
	}
	return nil
}

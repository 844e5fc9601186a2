package state

import (
	"context"
	"fmt"

	"workflowagent/internal/dev/bench/figures"
)

// Stored measures the data that an update of one among many resources adds on disk.
func (b *Bench) Stored(ctx context.Context) error {
	if b.Quick {
		return b.storedOf(ctx, 200, 2)
	}
	if err := b.storedOf(ctx, 1000, 4); err != nil {
		return err
	}
	return b.storedOf(ctx, 10_000, 2) // an update takes a minute
}

func (b *Bench) storedOf(ctx context.Context, n, updates int) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	c, err := b.newCLIs(ctx, n)
	if err != nil {
		return err
	}
	plain, err := c.forProduct(p)
	if err != nil {
		return err
	}
	server := plain.with(fast())
	const stack = "stored"
	if err := server.init(ctx, stack); err != nil {
		return err
	}
	// The first update after the one that creates the resources can still store a whole state.
	for i := range 2 {
		if err := c.write(n, fmt.Sprintf("before%d", i)); err != nil {
			return err
		}
		if _, err := server.on(ctx, stack, "up", "--yes", "--skip-preview"); err != nil {
			return err
		}
	}
	before, err := p.settled(ctx)
	if err != nil {
		return err
	}
	for i := range updates {
		if err := c.write(n, fmt.Sprintf("change%d", i)); err != nil {
			return err
		}
		if _, err := server.on(ctx, stack, "up", "--yes", "--skip-preview"); err != nil {
			return err
		}
	}
	after, err := p.settled(ctx)
	if err != nil {
		return err
	}
	state, err := p.export(ctx, stack)
	if err != nil {
		return err
	}
	percent := func(bytes float64) []float64 {
		return []float64{100 * bytes / float64(updates) / float64(len(state.body))}
	}
	b.Say("  %d resources: state of %d bytes, an update adds %.0f bytes and %.0f of events", n, len(state.body),
		(after.states-before.states)/float64(updates), (after.events-before.events)/float64(updates))
	b.Add(fmt.Sprintf("stored by an update of 1 of %d resources", n), "% of the state's JSON", percent(after.states-before.states), nil,
		figures.AtMost(2, true))
	b.Add("its engine events", "% of the state's JSON", percent(after.events-before.events), nil,
		figures.AtMost(10, true))
	b.Add("resources missing in the stored state", "resources", []float64{float64(n - state.stashes)}, nil, figures.AtMost(0, true))
	return nil
}

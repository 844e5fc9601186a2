package state

import (
	"context"
	"fmt"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
)

// Stored measures the data that an update of one among many resources adds on disk.
func Stored(ctx context.Context, run *figures.Run) error {
	if run.Quick {
		return stored(ctx, run, 200, 2)
	}
	if err := stored(ctx, run, 1000, 4); err != nil {
		return err
	}
	return stored(ctx, run, 10_000, 2) // an update takes a minute
}

func stored(ctx context.Context, run *figures.Run, n, updates int) error {
	s, err := site.Start(ctx, run, site.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := newCLIs(ctx, run, n)
	if err != nil {
		return err
	}
	plain, err := c.forSite(s)
	if err != nil {
		return err
	}
	server := plain.with(fast())
	const stack = "stored"
	// The first update after the one that creates the resources can still store a whole state.
	const unmeasured = 2
	var before disk
	for i := range unmeasured + updates {
		if i == unmeasured {
			if before, err = settled(ctx, s); err != nil {
				return err
			}
		}
		if err := c.write(n, fmt.Sprintf("change%d", i)); err != nil {
			return err
		}
		if _, err := server.up(ctx, stack, i == 0); err != nil {
			return err
		}
	}
	after, err := settled(ctx, s)
	if err != nil {
		return err
	}
	size, stashes, err := export(ctx, s, stack)
	if err != nil {
		return err
	}
	percent := func(bytes float64) []float64 { return []float64{100 * bytes / float64(updates) / float64(size)} }
	run.Add(fmt.Sprintf("stored by an update of 1 of %d resources", n), "% of the state's JSON", percent(after.states-before.states), figures.AtMost(2, true))
	run.Add("its engine events", "% of the state's JSON", percent(after.events-before.events), figures.AtMost(10, true))
	run.Add("resources missing in the stored state", "resources", []float64{float64(n - stashes)}, figures.AtMost(0, true))
	return nil
}

package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

// firstTime is the time after which no third first deployment of a program begins. The first one of a program in Go
// takes minutes.
const firstTime = 2 * time.Minute

// Warm compares deployments of programs in processes with pulumi up in a checkout that is kept.
func Warm(ctx context.Context, run *figures.Run) error {
	return warmAll(ctx, run, warmPrograms(run), nil)
}

// Containers is [Warm] with deployments in containers, and with pulumi up in containers of the same image, to
// which the directory of the checkout is mounted.
func Containers(ctx context.Context, run *figures.Run) error {
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		run.Skip("deployments in containers", reason)
		return nil
	}
	dir, err := run.NewDir()
	if err != nil {
		return err
	}
	engine, err := lab.StartEngine(ctx, dir)
	if err != nil {
		return err
	}
	var programs []warmProgram
	for _, p := range warmPrograms(run) {
		if p.inImages {
			p.more, p.change = 2.5, nil
			programs = append(programs, p)
		}
	}
	return errors.Join(warmAll(ctx, run, programs, engine), engine.Stop())
}

func warmAll(ctx context.Context, run *figures.Run, programs []warmProgram, engine *lab.Engine) error {
	w, err := startWarm(ctx, run, setup{}, engine)
	if err != nil {
		return err
	}
	defer w.close()
	for i, p := range programs {
		if why := p.missing(); why != "" {
			run.Skip(p.name, why)
			continue
		}
		w.stack = fmt.Sprintf("warm%d", i)
		if err := w.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// measure deploys a program: on an agent that has never seen it, and then again and again.
func (w *warm) measure(ctx context.Context, p warmProgram) error {
	repo, err := w.publish(ctx, p)
	if err != nil {
		return err
	}
	if err := w.newStack(ctx, p, repo); err != nil {
		return err
	}
	user, err := w.newUser(p)
	if err != nil {
		return err
	}
	ours, bare, err := w.first(ctx, repo, user)
	if err != nil {
		return err
	}
	w.run.Say("  %s: first deployment %.1f s; clone, install and up by hand %.1f s (%d rounds)", p.name, figures.Median(ours), figures.Median(bare), len(ours))
	w.run.Compare(p.name+": first deployment; clone, install and up by hand", "s", ours, bare, figures.RatioAtMost(1.1, false))
	syscall.Sync()
	var more []float64
	ours, bare = nil, nil
	for range w.run.Rounds {
		b, err := seconds(func() error { return user.up(ctx) })
		if err != nil {
			return err
		}
		d, err := w.deploy(ctx)
		if err != nil {
			return err
		}
		ours, bare, more = append(ours, d.took), append(bare, b), append(more, d.took-b)
	}
	w.run.Say("  %s: second deployment %.2f s; pulumi up %.2f s", p.name, figures.Median(ours), figures.Median(bare))
	w.run.Compare(p.name+": second deployment; pulumi up in a kept checkout", "s", ours, bare, figures.Goal{})
	w.run.Add(p.name+": longer than pulumi up", "s", more, figures.AtMost(p.more, false))
	if p.change != nil {
		if err := w.changed(ctx, p, repo, user); err != nil {
			return err
		}
	}
	return errors.Join(w.forget(ctx), user.forget()) // gigabytes
}

// first measures deployments on an agent that has never seen the program, and the same by hand in an empty home.
// They take turns at coming first, because the second one finds the caches of the network and of the disk warm.
func (w *warm) first(ctx context.Context, repo *lab.Repo, user *user) (ours, bare []float64, err error) {
	turns := []func() error{
		func() error {
			d, err := w.deploy(ctx)
			ours = append(ours, d.took)
			return err
		},
		func() error {
			b, err := seconds(func() error {
				return errors.Join(user.run(ctx, "git", "clone", "--quiet", "--depth=1", repo.URL, "."), user.pulumi(ctx, "install"), user.up(ctx))
			})
			bare = append(bare, b)
			return err
		},
	}
	for began := time.Now(); len(ours) < w.run.Rounds && (len(ours) < 2 || time.Since(began) < firstTime); {
		if err := errors.Join(w.forget(ctx), user.forget()); err != nil {
			return nil, nil, err
		}
		for _, turn := range turns {
			syscall.Sync()
			if err := turn(); err != nil {
				return nil, nil, err
			}
		}
		slices.Reverse(turns)
	}
	return ours, bare, nil
}

// changed measures deployments of which each has another commit.
func (w *warm) changed(ctx context.Context, p warmProgram, repo *lab.Repo, user *user) error {
	var ours, bare []float64
	for round := range w.run.Rounds {
		path, text := p.change(round + 1)
		if _, err := repo.Commit(ctx, lab.MainBranch, "Change", map[string]string{path: text}); err != nil {
			return err
		}
		b, err := seconds(func() error {
			err := errors.Join(user.run(ctx, "git", "fetch", "--quiet", "--depth=1", "origin", lab.MainBranch),
				user.run(ctx, "git", "checkout", "--quiet", "FETCH_HEAD"))
			if p.fetch || err != nil {
				return err
			}
			return user.up(ctx)
		})
		if err != nil {
			return err
		}
		d, err := w.deploy(ctx)
		if err != nil {
			return err
		}
		if p.fetch {
			d.took = d.source
		}
		ours, bare = append(ours, d.took), append(bare, b)
	}
	w.run.Say("  %s: with a changed file %.2f s; by hand %.2f s", p.name, figures.Median(ours), figures.Median(bare))
	if p.fetch {
		w.run.Compare(p.name+": source with a changed file; git fetch and checkout", "s", ours, bare, figures.RatioAtMost(1.2, false))
		return nil
	}
	w.run.Compare(p.name+": deployment of a changed file; fetch and up by hand", "s", ours, bare, figures.RatioAtMost(1.5, false))
	return nil
}

func seconds(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return time.Since(began).Seconds(), err
}

// Package upkeep implements the update policy: when a running agent checks for releases, when a
// release may replace the agent, and how the service's helper installs a release.
package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/update"
	"workflowagent/internal/retry"
)

// Keeper keeps a running agent up to date.
type Keeper struct {
	Version string // version of this process
	// Stage is the directory from which the service's helper installs releases. It is "" if there
	// is no helper.
	Stage        string
	First, Every time.Duration // 0 means the defaults
	Report       func() status.Report
	Log          *logrus.Entry

	source       source
	installation *update.Installation // if nil, new releases are only announced
	advice       string               // how the operator can update, if releases are only announced
	started      time.Time

	mu     sync.Mutex
	state  status.Update
	logged string // the last logged line, to log each line only once
}

// source finds and stages releases.
type source interface {
	// Latest returns the newest release in the channel.
	Latest(ctx context.Context) (update.Candidate, error)
	// Stage verifies a release and stores it in the directory from which the helper installs it.
	Stage(ctx context.Context, c update.Candidate, s update.Staging) error
}

const (
	firstCheck    = 5 * time.Minute // delay after the start, so that an agent in a crash loop does not check
	checkInterval = 6 * time.Hour
	// retryCheck is the pause after a failed check. It doubles after each failure, up to
	// checkInterval.
	retryCheck = 10 * time.Minute
	// pollInterval is the longest pause between two checks of whether the agent can be restarted,
	// and of whether the helper has installed the release.
	pollInterval = 10 * time.Second
	// handOver is the time limit for the helper to accept a request.
	handOver = 5 * time.Minute
)

// Status returns the current state of updates.
func (k *Keeper) Status() status.Update {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run checks for releases until ctx is canceled. If auto_update has no effect, Run logs the
// reason.
func (k *Keeper) Run(ctx context.Context, c *config.Config, caPEM []byte) {
	finder, err := NewFinder(c, caPEM, filepath.Join(c.StateDirectory, update.SeenFile))
	var install update.Installation
	mode := plan(c, k.Version, k.Stage, err, func() (err error) {
		install, err = update.FindOwn(ctx)
		return err
	})
	required := c.AutoUpdate == config.UpdateOn
	if mode.Mode == status.UpdateOff {
		k.set(func(s *status.Update) { *s = mode })
		if required {
			k.Log.Warnf("auto_update has no effect: %s", mode.State)
		}
		return
	}
	k.set(func(s *status.Update) { s.Mode = mode.Mode })
	k.source, k.advice = finder, mode.State
	if mode.Mode == status.UpdateInstalls {
		k.installation = &install
	} else if required {
		k.Log.Warnf("auto_update can only announce releases here: %s", mode.State)
	}
	k.keep(ctx)
}

func (k *Keeper) every() time.Duration { return cmp.Or(k.Every, checkInterval) }

func (k *Keeper) keep(ctx context.Context) {
	k.started = time.Now()
	if k.installation != nil && !k.awaitUpdate(ctx) {
		return
	}
	pause, failures := cmp.Or(k.First, firstCheck), 0
	failing := retry.Policy{First: retryCheck, Max: k.every()}
	for retry.Sleep(ctx, retry.Spread(pause)) == nil {
		err := k.check(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, update.ErrDevelopment):
			k.set(func(s *status.Update) { s.Mode, s.State = status.UpdateOff, err.Error() })
			return
		case err != nil:
			k.failed(err)
			pause = failing.Pause(failures, err)
			failures++
		default:
			pause, failures = k.every(), 0
		}
	}
}

func (k *Keeper) check(ctx context.Context) error {
	c, err := k.source.Latest(ctx)
	if err != nil {
		return err
	}
	newer, err := c.Newer(k.Version)
	if err != nil {
		return err
	}
	now := time.Now()
	k.set(func(s *status.Update) {
		s.CheckedAt, s.Error, s.State, s.Available = &now, "", "", ""
		if newer {
			s.Available = c.Version
		}
	})
	if !newer {
		return nil
	}
	log := k.Log.WithField("available", c.Version)
	if k.installation == nil {
		k.say(log.Info, "a newer release is available: "+k.advice)
		k.set(func(s *status.Update) { s.State = k.advice })
		return nil
	}
	failure, ok, err := k.installation.Failed()
	if err != nil {
		log.WithError(err).Debug("reading the last failed version failed")
	}
	if ok && failure.Holds(c.Version, now) {
		text := "it was rolled back and will be tried again a day later: " + failure.Reason
		k.say(log.Warn, "the newer release is not installed: "+text)
		k.set(func(s *status.Update) { s.State = text })
		return nil
	}
	k.say(log.Info, "a newer release is available and will be installed as soon as the agent can restart")
	return k.install(ctx, c, log)
}

// install hands a release over to the helper as soon as the agent may be restarted.
func (k *Keeper) install(ctx context.Context, c update.Candidate, log *logrus.Entry) error {
	if !k.await(ctx, k.every(), func() bool {
		reason := blocked(k.Report())
		k.set(func(s *status.Update) { s.State = reason })
		return reason == ""
	}) {
		return nil // the next check may find a newer release
	}
	k.set(func(s *status.Update) { s.State = "is being downloaded and verified" })
	if err := k.source.Stage(ctx, c, update.Staging{Dir: k.Stage}); err != nil {
		return err
	}
	log.Info("the release is verified and handed over to the service's helper")
	k.set(func(s *status.Update) { s.State = "is verified and was handed over to the service's helper" })
	request := filepath.Join(k.Stage, update.RequestFile)
	taken := func() bool {
		_, err := os.Lstat(request)
		return errors.Is(err, os.ErrNotExist)
	}
	if !k.await(ctx, handOver, taken) {
		return fmt.Errorf("the service's helper did not accept %s within %s: run service install again, which registers the helper", request, handOver)
	}
	// From now on, the helper stops this process unless it rejects the release.
	if !k.await(ctx, k.every(), func() bool { return !k.installation.Pending() }) {
		return nil
	}
	return fmt.Errorf("%s was not installed: see the log of the service's helper for the reason", c.Version)
}

// awaitUpdate waits for the end of an update during which this process was started, and logs the
// update's outcome. It returns false if ctx is canceled first.
func (k *Keeper) awaitUpdate(ctx context.Context) bool {
	from, to, ok := k.installation.Underway()
	if !ok {
		return true
	}
	k.set(func(s *status.Update) { s.State = "the update from " + from + " to " + to + " is not confirmed yet" })
	if !k.await(ctx, 0, func() bool { return !k.installation.Pending() }) {
		return false
	}
	k.set(func(s *status.Update) { s.State = "" })
	log := k.Log.WithFields(logrus.Fields{"from": from, "to": to})
	current, err := k.installation.Current()
	failure, failed, _ := k.installation.Failed() // without a readable record, the reason is unknown
	switch {
	case err != nil:
		k.failed(err)
	case current == to:
		log.Info("the agent was updated")
	case failed && failure.Version == to && !failure.At.Before(k.started):
		log.WithField("reason", failure.Reason).Warn("the update was rolled back: the new version did not work")
	default:
		log.Warn("the update was rolled back")
	}
	return true
}

// failed shows an error in the status. It logs each error only once.
func (k *Keeper) failed(err error) {
	now := time.Now()
	k.set(func(s *status.Update) { s.CheckedAt, s.Error, s.State = &now, err.Error(), "" })
	k.say(k.Log.WithError(err).Warn, "updating the agent failed; trying again later")
}

func (k *Keeper) say(log func(...any), text string) {
	k.mu.Lock()
	known := k.logged == text+k.state.Available+k.state.Error
	k.logged = text + k.state.Available + k.state.Error
	k.mu.Unlock()
	if !known {
		log(text)
	}
}

func (k *Keeper) set(change func(*status.Update)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.state)
}

// await waits for a condition, and reports whether it became true within the limit. A limit of 0
// means no limit.
func (k *Keeper) await(ctx context.Context, limit time.Duration, done func() bool) bool {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for !done() {
		if retry.Sleep(ctx, min(pollInterval, k.every())) != nil {
			return false
		}
	}
	return true
}

// blocked returns the reason why the agent must not be restarted with another version now, as a
// phrase that follows "the update". It returns "" if the agent may be restarted. Most jobs do not
// block an update: they continue without the agent, which later resumes them.
func blocked(r status.Report) string {
	switch {
	case r.Draining || r.Stopping || r.State == status.Draining || r.State == status.Stopping || r.State == status.Ended:
		return "waits for the next start, because the agent is stopping"
	case !r.Server.Connected:
		return "waits until the server answers the agent"
	case !r.Engine.Up:
		return "waits until jobs can run on this host"
	case r.Slots.Free == 0 && slices.ContainsFunc(r.Jobs, func(j status.Job) bool { return j.Epoch == 0 }):
		// Without a free slot, the agent does not poll such a server.
		return "waits for the end of a job, because the agent does not poll this server before then"
	}
	for _, j := range r.Jobs {
		switch j.Phase {
		case status.Preparing, status.StartingJob:
			return "waits until no job is being started"
		case status.Reattaching:
			return "waits until the jobs of the agent's previous process are resumed"
		}
	}
	return ""
}

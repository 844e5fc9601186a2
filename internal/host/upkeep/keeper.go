// Package upkeep is the policy of updates: when the running agent checks for a release, when a
// release may replace it, and how the helper of its service installs one.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/update"
	"workflowagent/internal/retry"
)

// Source provides releases.
type Source interface {
	// Latest returns the newest release of the channel.
	Latest(ctx context.Context) (update.Candidate, error)
	// Stage verifies a release and puts it where the helper finds it.
	Stage(ctx context.Context, c update.Candidate, s update.Staging) error
}

const (
	firstCheck    = 5 * time.Minute // after the start, so that a crash loop makes no checks
	checkInterval = 6 * time.Hour
	// retryCheck is the pause after a failed check; it doubles up to checkInterval.
	retryCheck = 10 * time.Minute
	// pollInterval is the longest pause between two checks whether the agent can be restarted and
	// whether the helper has installed a release.
	pollInterval = 10 * time.Second
	// handOver is the time within which the helper must accept a request.
	handOver = 5 * time.Minute
)

// Options configure a [Keeper].
type Options struct {
	Source  Source
	Version string // of this process
	// Install is the installation to keep current, and Stage the directory from which its helper
	// installs. Without Install, releases are only announced.
	Install *update.Installation
	Stage   string
	// Advice says how the operator updates, if releases are only announced.
	Advice string
	Report func() status.Report
	Log    *logrus.Entry

	First, Every time.Duration // 0 means the default
}

// Keeper keeps one agent up to date.
type Keeper struct {
	o       Options
	started time.Time

	mu     sync.Mutex
	state  status.Update
	logged string // the last line, to log it once
}

// New returns a keeper that has not checked yet.
func New(o Options) *Keeper {
	if o.First <= 0 {
		o.First = firstCheck
	}
	if o.Every <= 0 {
		o.Every = checkInterval
	}
	k := &Keeper{o: o, started: time.Now(), state: status.Update{Mode: status.UpdateTells}}
	if o.Install != nil {
		k.state.Mode = status.UpdateInstalls
	}
	return k
}

// Status returns what is known about newer releases.
func (k *Keeper) Status() status.Update {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run checks for releases until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	if k.o.Install != nil && !k.awaitUpdate(ctx) {
		return
	}
	pause, failures := k.o.First, 0
	failing := retry.Policy{First: retryCheck, Max: k.o.Every}
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
			pause, failures = k.o.Every, 0
		}
	}
}

func (k *Keeper) check(ctx context.Context) error {
	c, err := k.o.Source.Latest(ctx)
	if err != nil {
		return err
	}
	newer, err := c.Newer(k.o.Version)
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
	log := k.o.Log.WithField("available", c.Version)
	if k.o.Install == nil {
		k.say(log.Info, "a newer release is available: "+k.o.Advice)
		k.set(func(s *status.Update) { s.State = k.o.Advice })
		return nil
	}
	failure, ok, err := k.o.Install.Failed()
	if err != nil {
		log.WithError(err).Debug("reading which version failed before failed")
	}
	if ok && failure.Holds(c.Version, now) {
		text := "it was tried and rolled back, and is tried again a day later: " + failure.Reason
		k.say(log.Warn, "the newer release is not installed: "+text)
		k.set(func(s *status.Update) { s.State = text })
		return nil
	}
	k.say(log.Info, "a newer release is available, and is installed as soon as the agent can restart")
	return k.install(ctx, c, log)
}

// install hands a release over once the agent may be restarted.
func (k *Keeper) install(ctx context.Context, c update.Candidate, log *logrus.Entry) error {
	if !k.await(ctx, k.o.Every, func() bool {
		reason := blocked(k.o.Report())
		k.set(func(s *status.Update) { s.State = reason })
		return reason == ""
	}) {
		return nil // the next check may find a newer one
	}
	k.set(func(s *status.Update) { s.State = "is downloaded and verified" })
	if err := k.o.Source.Stage(ctx, c, update.Staging{Dir: k.o.Stage}); err != nil {
		return err
	}
	log.Info("the release is verified and handed over to the service's helper")
	k.set(func(s *status.Update) { s.State = "is verified and handed over to be installed" })
	request := filepath.Join(k.o.Stage, update.RequestFile)
	taken := func() bool {
		_, err := os.Lstat(request)
		return errors.Is(err, os.ErrNotExist)
	}
	if !k.await(ctx, handOver, taken) {
		return fmt.Errorf("the service's helper has not taken %s within %s: run service install again, which registers the helper", request, handOver)
	}
	// From here on the helper ends this process, unless it refuses.
	if !k.await(ctx, k.o.Every, func() bool { return !k.o.Install.Pending() }) {
		return nil
	}
	return fmt.Errorf("%s was not installed: the log of the service's helper has the reason", c.Version)
}

// awaitUpdate waits for the end of an update during which this process was started, and logs its
// outcome. It returns false if ctx ended before.
func (k *Keeper) awaitUpdate(ctx context.Context) bool {
	from, to, ok := k.o.Install.Underway()
	if !ok {
		return true
	}
	k.set(func(s *status.Update) { s.State = "the update from " + from + " to " + to + " is not confirmed yet" })
	for k.o.Install.Pending() {
		if retry.Sleep(ctx, min(pollInterval, k.o.Every)) != nil {
			return false
		}
	}
	k.set(func(s *status.Update) { s.State = "" })
	log := k.o.Log.WithFields(logrus.Fields{"from": from, "to": to})
	current, err := k.o.Install.Current()
	failure, failed, _ := k.o.Install.Failed() // an unreadable note counts as none
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

// failed shows an error, and logs it once.
func (k *Keeper) failed(err error) {
	now := time.Now()
	k.set(func(s *status.Update) { s.CheckedAt, s.Error, s.State = &now, err.Error(), "" })
	k.say(k.o.Log.WithError(err).Warn, "updating the agent failed; trying again later")
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

// await waits for a condition, and reports whether it became true in time.
func (k *Keeper) await(ctx context.Context, limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !done() {
		if retry.Sleep(ctx, min(pollInterval, k.o.Every)) != nil {
			return false
		}
	}
	return true
}

// blocked returns why an agent must not be restarted with another version now, in words that follow
// "the update", or "". Most jobs do not count: they continue without the agent, which resumes them.
func blocked(r status.Report) string {
	switch {
	case r.Draining || r.Stopping || r.State == status.Draining || r.State == status.Stopping || r.State == status.Ended:
		return "waits for the next start, because the agent is stopping"
	// The new version could not be confirmed.
	case !r.Server.Connected:
		return "waits until the server answers the agent"
	case !r.Engine.Up:
		return "waits until jobs can run on this host"
	case r.Slots.Free == 0 && slices.ContainsFunc(r.Jobs, func(j status.Job) bool { return j.Epoch == 0 }):
		// Without a free slot the agent does not poll such a server.
		return "waits for the end of a job, because the agent does not poll this server before"
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

// Package upkeep keeps the running agent at the newest release: it looks for releases
// now and then, and either tells people, or verifies one and hands it to the helper of
// the service manager as soon as a restart of the agent disturbs nobody.
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

// Source is where releases come from.
type Source interface {
	// Latest returns the newest release of the channel.
	Latest(ctx context.Context) (update.Candidate, error)
	// Stage verifies a release and puts it where the helper finds it.
	Stage(ctx context.Context, c update.Candidate, s update.Staging) error
}

// Times, where nobody chose others.
const (
	firstLook = 5 * time.Minute // after the start: an agent that keeps crashing looks for nothing
	everyLook = 6 * time.Hour
	// retryLook is the pause after a look that failed; it doubles up to everyLook.
	retryLook = 10 * time.Minute
	// lookAgain is the longest pause between two looks whether the agent can be
	// restarted, and what has become of a release that was handed over.
	lookAgain = 10 * time.Second
	// handOver is how long the helper may take to see that there is something to do.
	handOver = 5 * time.Minute
)

// Options are what upkeep needs.
type Options struct {
	Source  Source
	Version string // of this process
	// Install is the installation that is to be kept current, and Stage the directory
	// that its helper looks into. Install nil: upkeep only tells.
	Install *update.Installation
	Stage   string
	// Advice says how a person updates, where upkeep only tells.
	Advice string
	// Report says how the agent is.
	Report func() status.Report
	Log    *logrus.Entry

	First, Every time.Duration // 0: the usual
}

// Keeper looks for releases for one agent.
type Keeper struct {
	o       Options
	started time.Time

	mu    sync.Mutex
	state status.Update
	told  string // last thing that was told, so that each is told once
}

// New returns a keeper that has not looked yet.
func New(o Options) *Keeper {
	if o.First <= 0 {
		o.First = firstLook
	}
	if o.Every <= 0 {
		o.Every = everyLook
	}
	k := &Keeper{o: o, started: time.Now(), state: status.Update{Mode: status.UpdateTells}}
	if o.Install != nil {
		k.state.Mode = status.UpdateInstalls
	}
	return k
}

// Status returns what is known of newer releases.
func (k *Keeper) Status() status.Update {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run looks for releases until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	if k.o.Install != nil && !k.settle(ctx) {
		return
	}
	pause, failures := k.o.First, 0
	failing := retry.Policy{First: retryLook, Max: k.o.Every}
	for retry.Sleep(ctx, retry.Spread(pause)) == nil {
		err := k.look(ctx)
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

// look looks for a release once, and does what is to be done about one.
func (k *Keeper) look(ctx context.Context) error {
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
		k.say(log.Info, "A newer release is there: "+k.o.Advice)
		k.set(func(s *status.Update) { s.State = k.o.Advice })
		return nil
	}
	failure, ok, err := k.o.Install.Failed()
	if err != nil {
		log.WithError(err).Debug("It is not known which version failed before")
	}
	if ok && failure.Holds(c.Version, now) {
		text := "it was tried and taken back, and is tried again a day later: " + failure.Reason
		k.say(log.Warn, "The newer release is left alone: "+text)
		k.set(func(s *status.Update) { s.State = text })
		return nil
	}
	k.say(log.Info, "A newer release is there, and is installed as soon as nothing is in its way")
	return k.install(ctx, c, log)
}

// install hands a release over when the agent may be restarted.
func (k *Keeper) install(ctx context.Context, c update.Candidate, log *logrus.Entry) error {
	if !k.await(ctx, k.o.Every, func() bool {
		reason := blocked(k.o.Report())
		k.set(func(s *status.Update) { s.State = reason })
		return reason == ""
	}) {
		return nil // the next look may find a newer one
	}
	k.set(func(s *status.Update) { s.State = "is downloaded and verified" })
	if err := k.o.Source.Stage(ctx, c, update.Staging{Dir: k.o.Stage}); err != nil {
		return err
	}
	log.Info("The release is verified, and handed over to be installed")
	k.set(func(s *status.Update) { s.State = "is verified, and handed over to be installed" })
	request := filepath.Join(k.o.Stage, update.RequestFile)
	taken := func() bool {
		_, err := os.Lstat(request)
		return errors.Is(err, os.ErrNotExist)
	}
	if !k.await(ctx, handOver, taken) {
		return fmt.Errorf("nobody has taken %s within %s: run service install once more, which makes the helper that does", request, handOver)
	}
	// From here on this process is ended, unless the helper refuses.
	if !k.await(ctx, k.o.Every, func() bool { return !k.o.Install.Pending() }) {
		return nil
	}
	return fmt.Errorf("%s was not installed: the log of the service's helper says why", c.Version)
}

// settle waits for the end of an update in whose middle this process was started, and
// tells how it ended. It returns false if ctx ended before.
func (k *Keeper) settle(ctx context.Context) bool {
	from, to, ok := k.o.Install.Underway()
	if !ok {
		return true
	}
	k.set(func(s *status.Update) { s.State = "the update from " + from + " to " + to + " is not confirmed yet" })
	for k.o.Install.Pending() {
		if retry.Sleep(ctx, min(lookAgain, k.o.Every)) != nil {
			return false
		}
	}
	k.set(func(s *status.Update) { s.State = "" })
	log := k.o.Log.WithFields(logrus.Fields{"from": from, "to": to})
	current, err := k.o.Install.Current()
	failure, failed, _ := k.o.Install.Failed() // a note that cannot be read is none
	switch {
	case err != nil:
		k.failed(err)
	case current == to:
		log.Info("The agent was updated")
	case failed && failure.Version == to && !failure.At.Before(k.started):
		log.WithField("reason", failure.Reason).Warn("The update was taken back: the new version did not get to work")
	default:
		log.Warn("The update was taken back")
	}
	return true
}

// failed shows what went wrong, and tells it unless it is what went wrong before.
func (k *Keeper) failed(err error) {
	now := time.Now()
	k.set(func(s *status.Update) { s.CheckedAt, s.Error, s.State = &now, err.Error(), "" })
	k.say(k.o.Log.WithError(err).Warn, "The agent could not bring itself up to date; trying again later")
}

// say tells something once.
func (k *Keeper) say(tell func(...any), text string) {
	k.mu.Lock()
	known := k.told == text+k.state.Available+k.state.Error
	k.told = text + k.state.Available + k.state.Error
	k.mu.Unlock()
	if !known {
		tell(text)
	}
}

func (k *Keeper) set(change func(*status.Update)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.state)
}

// await looks again and again, for about that long, and reports whether it became true.
func (k *Keeper) await(ctx context.Context, patience time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !done() {
		if retry.Sleep(ctx, min(lookAgain, k.o.Every)) != nil {
			return false
		}
	}
	return true
}

// blocked says why an agent should not be restarted with another version now, in words
// that follow "the update"; "" if nothing is in the way. The jobs of an agent go on
// without it and are found again, so most do not count.
func blocked(r status.Report) string {
	switch {
	case r.Draining || r.Stopping || r.State == status.Draining || r.State == status.Stopping || r.State == status.Ended:
		return "waits for the next start, as the agent is about to end"
	// Nobody could tell whether the new version reaches the server.
	case !r.Server.Connected:
		return "waits until the server answers the agent"
	case !r.Engine.Up:
		return "waits until jobs can run here"
	case r.Slots.Free == 0 && slices.ContainsFunc(r.Jobs, func(j status.Job) bool { return j.Epoch == 0 }):
		// Such a server is not asked for anything while there is no room for a job.
		return "waits for the end of a job, as this server can be asked for nothing before"
	}
	for _, j := range r.Jobs {
		switch j.Phase {
		case status.Preparing, status.StartingJob:
			return "waits until no job is being started"
		case status.Reattaching:
			return "waits until the jobs of the agent's last process are found again"
		}
	}
	return ""
}

package update

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
)

// The waits for a service, where nobody chose others.
const (
	patience = 3 * time.Minute // for the first poll, which a server may hold for 50 s
	interval = time.Second     // between two looks
	steady   = 5 * time.Second // for which one process must have stayed well
	callTime = 2 * time.Minute // for one call to the service manager
)

// conclude brings an update to its end, forward or backward. Whatever it does has the
// same result when it is done twice, so that it may be interrupted anywhere.
func (a *Applier) conclude(ctx context.Context, root *os.Root, j *journal) (Result, error) {
	result := Result{From: j.From, To: j.To}
	log := a.Log.WithFields(logrus.Fields{"from": j.From, "to": j.To})
	if j.Phase == forward {
		err := a.switchTo(ctx, root, j.To, j.Wait)
		if err == nil {
			result.Outcome = Updated
			return result, a.confirm(root, j, log)
		}
		if ctx.Err() != nil {
			// Somebody stopped us; that says nothing of the new version.
			return result, fmt.Errorf("interrupted before the new version was confirmed; the next start of the updater goes on: %w", ctx.Err())
		}
		log.WithError(err).Error("the new version does not get to work, and is taken back")
		j.Phase, j.Reason = backward, err.Error()
		if err := j.write(root); err != nil {
			// Going back matters more than the note: without it, a later start tries
			// the new version once more.
			log.WithError(err).Error("the journal of the update cannot be written")
		}
		step("turned")
	}
	result.Outcome, result.Reason = Back, j.Reason
	err := a.switchTo(ctx, root, j.From, j.Wait)
	if ctx.Err() != nil {
		return result, fmt.Errorf("interrupted before the old version was back; the next start of the updater goes on: %w", ctx.Err())
	}
	step("back")
	if now, currentErr := a.Current(); currentErr != nil || now != j.From {
		return result, fmt.Errorf("%s could not be made current again: %w", j.From, errors.Join(err, currentErr))
	}
	if err != nil {
		// Then it is likely not the new version's fault, but the network's: it may be
		// tried again as soon as the old one has reached its server.
		log.WithError(err).Error("the old version is current again, but does not get to work either")
		return result, errors.Join(fmt.Errorf("%s was taken back (%s), but %s does not get to work either: %w", j.To, j.Reason, j.From, err), a.drop(root, j))
	}
	if err := writeFailure(root, Failure{Version: j.To, At: a.time().UTC(), Reason: j.Reason}); err != nil {
		log.WithError(err).Error("that the version failed cannot be noted, so that it may be tried again at once")
	}
	step("noted")
	log.WithField("reason", j.Reason).Warn("the old version is current and works again")
	return result, a.drop(root, j)
}

// confirm ends an update that got to work.
func (a *Applier) confirm(root *os.Root, j *journal, log *logrus.Entry) error {
	step("healthy")
	if err := point(root, provenLink, j.To); err != nil {
		return err
	}
	step("proven")
	if err := forget(root); err != nil {
		return err
	}
	step("confirmed")
	log.Info("the update is complete")
	if err := prune(root, j.From, j.To); err != nil {
		log.WithError(err).Warn("older versions could not be removed")
	}
	return nil
}

// drop ends an update that was taken back.
func (a *Applier) drop(root *os.Root, j *journal) error {
	if err := forget(root); err != nil {
		return err
	}
	step("forgotten")
	if executing(root, j.To) {
		return nil // a job that the new version has started
	}
	return root.RemoveAll(versionsDir + "/" + j.To)
}

// switchTo makes a version current, and waits until it has got as far as wanted.
func (a *Applier) switchTo(ctx context.Context, root *os.Root, version string, want Progress) error {
	now, err := a.Current()
	if err != nil || now != version {
		if err := point(root, currentLink, version); err != nil {
			return err
		}
	}
	step("swapped")
	if want == NotRunning || a.Service == nil {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	health, err := a.Service.Health(call)
	cancel()
	if err != nil || health.Version != version {
		call, cancel := context.WithTimeout(ctx, callTime)
		err := a.Service.Restart(call)
		cancel()
		if err != nil {
			// So does a service manager that shuts down, and it ends us a moment later:
			// that is not the version's fault.
			_ = retry.Sleep(ctx, or(a.steady, steady))
			return fmt.Errorf("restarting the service: %w", err)
		}
	}
	step("restarted")
	return a.await(ctx, version, want)
}

// await waits until one process of the version has been well for some time.
func (a *Applier) await(ctx context.Context, version string, want Progress) error {
	ctx, cancel := context.WithTimeout(ctx, or(a.Patience, patience))
	defer cancel()
	var since time.Time
	var pid int
	last := "it did not answer"
	for {
		health, err := a.Service.Health(ctx)
		good := err == nil && health.Version == version && (health.Progress == Polled || health.Progress == Waiting && want == Waiting)
		switch {
		case good && (since.IsZero() || pid != health.PID):
			pid, since = health.PID, time.Now()
		case good && time.Since(since) >= or(a.steady, steady):
			return nil
		case !good:
			since = time.Time{}
			switch {
			case err == nil && (health.Version == version || health.Version == ""):
				last = fmt.Sprintf("%s is %s", version, health.Progress)
			case err == nil:
				last = fmt.Sprintf("the service is %s, with the version %q", health.Progress, health.Version)
			case ctx.Err() == nil:
				last = err.Error()
			}
		}
		if retry.Sleep(ctx, or(a.interval, interval)) != nil {
			return fmt.Errorf("%s did not get to work in %v: %s", version, or(a.Patience, patience), last)
		}
	}
}

func or(d, usual time.Duration) time.Duration {
	if d == 0 {
		return usual
	}
	return d
}

package update

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/host/release"
	"workflowagent/internal/retry"
)

const (
	timeout  = 3 * time.Minute // wait for the first poll, which a server can hold for 50 s
	interval = time.Second     // pause between two health checks
	steady   = 5 * time.Second // time for which one process must stay healthy
	callTime = 3 * time.Minute // limit for each call to the service manager
)

// conclude completes an update forward or backward. Each step can be repeated after a crash.
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
			// This process was stopped. The new version is not the cause.
			return result, fmt.Errorf("interrupted before the new version was confirmed; the next start of the updater continues: %w", ctx.Err())
		}
		log.WithError(err).Error("the new version does not work, rolling back")
		j.Phase, j.Reason = backward, err.Error()
		if err := j.write(root); err != nil {
			// This record prevents the version from being tried again soon. A failure to write it
			// must not prevent the rollback.
			log.WithError(err).Error("writing the journal of the update failed")
		}
		step("turned")
	}
	result.Outcome, result.Reason = Back, j.Reason
	err := a.switchTo(ctx, root, j.From, j.Wait)
	if ctx.Err() != nil {
		return result, fmt.Errorf("interrupted before the old version was back; the next start of the updater continues: %w", ctx.Err())
	}
	step("back")
	if now, currentErr := a.Current(); currentErr != nil || now != j.From {
		return result, fmt.Errorf("%s could not be made current again: %w", j.From, errors.Join(err, currentErr))
	}
	if err != nil {
		// The network is the likely cause, so the version may be tried again when the old version
		// polls again.
		log.WithError(err).Error("the old version is current again, but does not work either")
		return result, errors.Join(fmt.Errorf("%s was rolled back (%s), but %s does not work either: %w", j.To, j.Reason, j.From, err), a.drop(root, j))
	}
	if err := store(root, failureFile, Failure{Version: j.To, At: a.time().UTC(), Reason: j.Reason}); err != nil {
		log.WithError(err).Error("recording the failed version failed, so it may be tried again at once")
	}
	step("noted")
	log.WithField("reason", j.Reason).Warn("the old version is current and works again")
	return result, a.drop(root, j)
}

// confirm completes an update whose new version works.
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

// drop completes an update that was rolled back.
func (a *Applier) drop(root *os.Root, j *journal) error {
	if err := forget(root); err != nil {
		return err
	}
	step("forgotten")
	if executing(root, j.To) {
		return nil // a job that the new version started is still running
	}
	return root.RemoveAll(versionsDir + "/" + j.To)
}

// switchTo makes a version current, restarts the service, and waits until the agent reaches the
// required progress.
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
	defer cancel()
	if health, err := a.Service.Health(call); err != nil || health.Version != version {
		if err := a.Service.Restart(call); err != nil {
			// During a shutdown, the service manager also refuses the restart, and then stops this
			// process.
			_ = retry.Sleep(ctx, cmp.Or(a.steady, steady))
			return fmt.Errorf("restarting the service: %w", err)
		}
	}
	step("restarted")
	return a.await(ctx, version, want)
}

// await waits until a single process of the version has been ready for some time.
func (a *Applier) await(ctx context.Context, version string, want Progress) error {
	limit := cmp.Or(a.Timeout, timeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
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
		case good && time.Since(since) >= cmp.Or(a.steady, steady):
			return nil
		case !good:
			since = time.Time{}
			switch {
			case err == nil && (health.Version == version || health.Version == ""):
				last = fmt.Sprintf("%s is %s", version, health.Progress)
			case err == nil:
				last = fmt.Sprintf("%q is %s", health.Version, health.Progress)
			case ctx.Err() == nil:
				last = err.Error()
			}
		}
		if retry.Sleep(ctx, cmp.Or(a.interval, interval)) != nil {
			return fmt.Errorf("%s did not become ready in %v: %s", version, limit, last)
		}
	}
}

// The names of files in the root of an installation. All users can read these files.
const (
	// JournalFile exists from an update's swap until its confirmation.
	JournalFile = "update.json"
	// failureFile contains the newest version that failed.
	failureFile = "update-failed.json"
)

// phase is the direction of an update.
type phase string

const (
	forward  phase = "forward"  // to the new version
	backward phase = "backward" // back to the old version
)

// journal contains the state with which any process can complete an update.
type journal struct {
	Phase  phase     `json:"phase"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Wait   Progress  `json:"wait"` // the progress of the old version, which the new version must reach
	Tries  int       `json:"tries"`
	Reason string    `json:"reason,omitempty"` // reason for the rollback
	At     time.Time `json:"at"`
}

// check returns an error for a journal that no update can have written.
func (j journal) check() error {
	order, err := compare(j.To, j.From)
	switch {
	case err != nil:
		return err
	case order <= 0:
		return fmt.Errorf("%s is not newer than %s", j.To, j.From)
	case j.Phase != forward && j.Phase != backward:
		return fmt.Errorf("the phase %q is unknown", j.Phase)
	case j.Wait != NotRunning && j.Wait != Waiting && j.Wait != Polled:
		return fmt.Errorf("the progress %q cannot be waited for", j.Wait)
	}
	return nil
}

func readJournal(root *os.Root) (*journal, error) {
	var j journal
	err := load(root, JournalFile, &j)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // usually, no journal exists
	}
	if err == nil {
		err = j.check()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the update journal %s: %w", JournalFile, err)
	}
	return &j, nil
}

func (j *journal) write(root *os.Root) error { return store(root, JournalFile, j) }

// forget removes the journal.
func forget(root *os.Root) error {
	return errors.Join(root.RemoveAll(JournalFile), syncDir(root, "."))
}

// retryAfter is the time after which a failed version may be tried again without a request by the
// operator.
const retryAfter = 24 * time.Hour

// Failure describes a version that failed and was rolled back.
type Failure struct {
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
}

// Holds reports whether it is too early to try the version again.
func (f Failure) Holds(version string, now time.Time) bool {
	since := now.Sub(f.At)
	// After the clock is set back, a version must not be blocked for long.
	return f.Version == version && since < retryAfter && since > -retryAfter
}

// Failed returns the newest version that failed in this installation. ok is false if no version
// failed.
func (i Installation) Failed() (f Failure, ok bool, err error) {
	path := filepath.Join(i.Root, failureFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil {
		err = release.CheckVersion(f.Version)
	}
	if err != nil {
		return Failure{}, false, fmt.Errorf("reading the last failed version from %s: %w", path, err)
	}
	return f, true, nil
}

// Pending reports whether an update is in progress or must be completed by the next
// [Applier.Apply].
func (i Installation) Pending() bool {
	_, err := os.Lstat(filepath.Join(i.Root, JournalFile))
	return err == nil
}

// Underway returns the versions of an unfinished update. ok is false if there is none, or if its
// journal cannot be read.
func (i Installation) Underway() (from, to string, ok bool) {
	root, err := os.OpenRoot(i.Root)
	if err != nil {
		return "", "", false
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	j, err := readJournal(root)
	if err != nil || j == nil {
		return "", "", false
	}
	return j.From, j.To, true
}

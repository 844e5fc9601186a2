package update

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/host/release"
)

// Progress describes how far a service's agent has come since its start.
type Progress string

// The possible values of Progress, in order.
const (
	NotRunning Progress = "not-running" // not installed or stopped
	Starting   Progress = "starting"    // running, but has not responded since its start
	Waiting    Progress = "waiting"     // running, and waiting for a configuration
	Polled     Progress = "polled"      // running, and its server has responded to a poll since its start
)

// Health is a service's report about its agent.
type Health struct {
	Version  string // version of the running process
	PID      int
	Progress Progress
}

// Service runs the agent. The caller limits the duration of each call.
type Service interface {
	// Restart restarts a running service with the current program.
	Restart(ctx context.Context) error
	// Health returns the health of the agent. It returns an error for an agent that does not
	// respond, for example while it starts or after a crash. The caller then retries. NotRunning is
	// only for a service that was stopped on purpose.
	Health(ctx context.Context) (Health, error)
}

// Applier installs staged releases.
type Applier struct {
	Installation
	Keys    release.Keys
	Service Service // nil if no service must be restarted
	Log     *logrus.Entry
	// Ready is called after all checks, immediately before the swap. An error postpones the update
	// and does not mark the version as failed. For example, an update must wait if the agent has
	// jobs that no other process could resume. If Ready is nil, the swap can happen at any time.
	Ready func(ctx context.Context) error
	// Timeout limits the wait for the new version's first poll. 0 means three minutes.
	Timeout time.Duration

	// Tests set these fields. 0 and nil mean the defaults.
	interval, steady time.Duration
	now              func() time.Time
}

// Result is the result of an update.
type Result struct {
	Outcome  Outcome
	From, To string // "" if there was no update
	Reason   string // the reason why the new version was rolled back
}

// Outcome is the outcome of an update.
type Outcome string

// The possible outcomes.
const (
	Nothing Outcome = ""        // there was nothing to do
	Updated Outcome = "updated" // the new version works
	Back    Outcome = "back"    // the new version failed and was rolled back
)

// ErrDowngrade is returned for a release that is older than the installed version.
var ErrDowngrade = errors.New("it is older than the installed version, and an update never installs an older version: to use it nevertheless, install it with install.sh")

// ErrFailedBefore is returned for a version that failed less than a day ago.
var ErrFailedBefore = errors.New("it was tried and rolled back less than a day ago")

// ErrNotConfirmable is returned if an update could not be confirmed, because the running agent has
// not reached its server since its start.
var ErrNotConfirmable = errors.New("the running agent has not reached its server since it started, so an update could not be confirmed: fix that first, or stop the service and then update")

// Apply completes an interrupted update, and then installs the release in the directory stage. If
// stage is "" or contains no request, Apply returns the result of the interrupted update.
//
// Apply does not trust the stage: it copies the files and checks the copy with the applier's keys.
// It removes the request except after [ErrBusy], because staging again is cheap. An error before
// the swap changes nothing. After the swap, a new version is rolled back if it does not reach the
// progress of the old version. The outcome is then Back, without an error. If ctx is canceled
// after the swap, the journal remains and the next Apply continues.
func (a *Applier) Apply(ctx context.Context, stage string) (result Result, err error) {
	err = a.locked(func(root *os.Root) error {
		if result, err = a.recover(ctx, root); err != nil || stage == "" {
			return err
		}
		if _, err := os.Lstat(filepath.Join(stage, RequestFile)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		result, err = a.apply(ctx, root, stage)
		return err
	})
	if err != nil {
		return result, fmt.Errorf("updating %s: %w", a.Root, explain(err))
	}
	return result, nil
}

// recover completes an update that was interrupted after its swap. It also removes the leftovers of
// an update that was interrupted before its swap.
func (a *Applier) recover(ctx context.Context, root *os.Root) (Result, error) {
	if err := clean(root); err != nil {
		return Result{}, err
	}
	j, err := readJournal(root)
	if err != nil {
		// No Applier wrote this journal, and it is not needed, because the link current names a
		// complete version.
		return Result{}, errors.Join(err, root.Rename(JournalFile, JournalFile+".broken"))
	}
	if j == nil {
		return Result{}, nil
	}
	log := a.Log.WithFields(logrus.Fields{"from": j.From, "to": j.To})
	if now, err := a.Current(); err == nil && now != j.From && now != j.To {
		log.WithField("current", now).Warn("an update was interrupted, and another version was installed since: keeping that version")
		return Result{}, forget(root)
	}
	log.Warn("an update was interrupted: completing it")
	if j.Tries++; j.Tries > maxTries && j.Phase == forward {
		j.Phase, j.Reason = backward, "the update was interrupted too often"
	}
	if err := j.write(root); err != nil {
		return Result{}, err
	}
	return a.conclude(ctx, root, j)
}

// clean removes the leftovers of an interrupted update or installation.
func clean(root *os.Root) error {
	names := []string{incomingDir}
	for _, name := range append(links(), currentLink, provenLink, JournalFile, failureFile) {
		names = append(names, next(name))
	}
	return removeAll(root, names...)
}

// maxTries is how many times an interrupted update is resumed. It is limited, because the new
// version might crash the machine.
const maxTries = 3

func (a *Applier) apply(ctx context.Context, root *os.Root, path string) (Result, error) {
	stage, err := openIntake(path)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = stage.Close() }()
	from, to, err := a.prepare(ctx, root, stage)
	var j *journal
	if err == nil && to != "" {
		j, err = a.begin(ctx, root, from, to)
	}
	if err != nil {
		err = errors.Join(err, root.RemoveAll(incomingDir))
	}
	// If the request remained, it would be applied again immediately and fail again. The journal
	// already exists and shows the agent that its request was not rejected.
	err = errors.Join(err, stage.RemoveAll(RequestFile))
	if j == nil {
		return Result{}, err
	}
	step("taken")
	result, concluded := a.conclude(ctx, root, j)
	return result, errors.Join(err, concluded)
}

// prepare adds the requested version to the installed versions. to is "" if the requested version
// is already current.
func (a *Applier) prepare(ctx context.Context, root, stage *os.Root) (from, to string, err error) {
	if from, err = a.Current(); err != nil {
		return "", "", err
	}
	want, err := readRequest(stage)
	if err != nil {
		return from, "", err
	}
	order, err := compare(want.Version, from)
	if err != nil {
		return from, "", err
	}
	if order == 0 {
		return from, "", nil
	}
	if order < 0 {
		return from, "", fmt.Errorf("%s: %w (%s)", want.Version, ErrDowngrade, from)
	}
	failed, ok, err := a.Failed()
	if err != nil {
		a.Log.WithError(err).Warn("reading the last failed version failed")
	}
	if ok && !want.Explicit && failed.Holds(want.Version, a.time()) {
		return from, "", fmt.Errorf("%s: %w (%s: %s)", want.Version, ErrFailedBefore, failed.At.Format(time.RFC3339), failed.Reason)
	}
	log := a.Log.WithFields(logrus.Fields{"from": from, "to": want.Version})
	log.Info("verifying and unpacking an update")
	if err := a.takeIn(ctx, root, stage, want.Version); err != nil {
		return from, "", err
	}
	return from, want.Version, put(root, want.Version)
}

// takeIn copies a version from the stage, checks and unpacks the copy in the root's private
// directory, and runs the new program once.
func (a *Applier) takeIn(ctx context.Context, root, stage *os.Root, version string) error {
	if err := root.Mkdir(incomingDir, 0o700); err != nil {
		return err
	}
	private, err := root.OpenRoot(incomingDir)
	if err != nil {
		return err
	}
	defer func() { _ = private.Close() }()
	if err := a.intake(ctx, stage, private, version); err != nil {
		return err
	}
	if err := try(ctx, filepath.Join(a.Root, incomingDir, unpackedDir, release.Program), version); err != nil {
		return err
	}
	step("tried")
	return nil
}

// begin writes the journal of an update. The journal includes the progress that the new version
// must reach.
func (a *Applier) begin(ctx context.Context, root *os.Root, from, to string) (*journal, error) {
	goal, err := a.goal(ctx, to)
	if err == nil {
		err = point(root, provenLink, from)
	}
	j := &journal{Phase: forward, From: from, To: to, Wait: goal, At: a.time().UTC()}
	if err == nil {
		err = j.write(root)
	}
	if err != nil {
		return nil, err
	}
	step("begun")
	return j, nil
}

// goal returns the progress that the new version must reach. If the update must wait, the error
// contains the reason.
func (a *Applier) goal(ctx context.Context, to string) (Progress, error) {
	if a.Ready != nil {
		if err := a.Ready(ctx); err != nil {
			return "", fmt.Errorf("postponing the update to %s: %w", to, err)
		}
	}
	if a.Service == nil {
		return NotRunning, nil
	}
	health, err := a.Service.Health(ctx)
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotConfirmable, err)
	}
	if health.Progress == Starting {
		return "", ErrNotConfirmable
	}
	return health.Progress, nil
}

func (a *Applier) time() time.Time {
	if a.now != nil {
		return a.now()
	}
	return time.Now()
}

// prune removes all versions except those in keep and those whose programs a process is executing.
func prune(root *os.Root, keep ...string) error {
	entries, err := fs.ReadDir(root.FS(), versionsDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if slices.Contains(keep, name) || executing(root, name) {
			continue
		}
		if err := root.RemoveAll(versionsDir + "/" + name); err != nil {
			return err
		}
	}
	return nil
}

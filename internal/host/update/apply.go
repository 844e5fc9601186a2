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

// Progress is the progress of a service's agent since its start.
type Progress string

// The states of an agent, in order.
const (
	NotRunning Progress = "not-running" // not installed, or stopped
	Starting   Progress = "starting"    // runs, has not answered since it started
	Waiting    Progress = "waiting"     // runs, waits for a configuration
	Polled     Progress = "polled"      // its server has answered a poll since it started
)

// Health is what a service reports about its agent.
type Health struct {
	Version  string // of the running process
	PID      int
	Progress Progress
}

// Service runs the agent. The caller bounds each call.
type Service interface {
	// Restart restarts a running service with the current program.
	Restart(ctx context.Context) error
	// Health reports on the agent. It returns an error for an agent that does not answer, as while
	// it starts or after a crash; the caller retries. NotRunning is for a service that was stopped
	// on purpose.
	Health(ctx context.Context) (Health, error)
}

// Applier installs staged releases.
type Applier struct {
	Installation
	Keys    release.Keys
	Service Service // nil: nothing needs a restart
	Log     *logrus.Entry
	// Ready is called after all checks, right before the swap. An error postpones the update and
	// does not mark the version as failed, for example for an agent whose jobs no other process
	// could resume. nil: the swap may happen at any time.
	Ready func(ctx context.Context) error
	// Timeout limits the wait for the new version's first poll; 0 means three minutes.
	Timeout time.Duration

	// For tests; 0 means the default.
	interval, steady time.Duration
	now              func() time.Time
}

// Result is the result of an update.
type Result struct {
	Outcome  Outcome
	From, To string // "" without an update
	Reason   string // why the new version was rolled back
}

// Outcome is the outcome of an update.
type Outcome string

// The outcomes.
const (
	Nothing Outcome = ""        // nothing to do
	Updated Outcome = "updated" // the new version works
	Back    Outcome = "back"    // the new version failed and was rolled back
)

// ErrDowngrade is returned for a release older than the installed one.
var ErrDowngrade = errors.New("it is older than the installed version, and an update never installs an older version: to use it nevertheless, install it with install.sh")

// ErrFailedBefore is returned for a version that failed less than a day ago.
var ErrFailedBefore = errors.New("it was tried and rolled back less than a day ago")

// ErrNotConfirmable is returned if the agent has not reached its server to confirm an update.
var ErrNotConfirmable = errors.New("the running agent has not reached its server since it started, so an update could not be confirmed: fix that first, or stop the service and then update")

// Apply first completes an interrupted update, then installs the release in the directory stage.
// Without a request there, or with stage "", it returns the result of the interrupted update.
//
// Apply does not trust the stage: it copies the files and checks the copy with the applier's keys.
// It removes the request except after [ErrBusy]; staging again is cheap. An error before the swap
// changes nothing. After the swap, a new version that does not reach the progress of the old one is
// rolled back, with outcome Back and no error. If ctx ends after the swap, the journal stays and
// the next Apply continues.
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

// recover completes an update that was interrupted after its swap, and removes the leftovers of one
// that was interrupted before its swap.
func (a *Applier) recover(ctx context.Context, root *os.Root) (Result, error) {
	if err := clean(root); err != nil {
		return Result{}, err
	}
	j, err := readJournal(root)
	if err != nil {
		// No Applier wrote it, and it is not needed: current names a complete version.
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

// maxTries is how often an interrupted update resumes: the new version may crash the machine.
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
	// A remaining request would be applied again at once, and fail again. The agent learns from the
	// journal, which already exists, that its request was not refused.
	err = errors.Join(err, stage.RemoveAll(RequestFile))
	if j == nil {
		return Result{}, err
	}
	step("taken")
	result, concluded := a.conclude(ctx, root, j)
	return result, errors.Join(err, concluded)
}

// prepare adds the requested version to the versions. It returns "" for to if it is current.
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

// takeIn copies, checks and unpacks a version into a directory of the root, and runs it once.
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

// begin writes the journal of an update, with the progress that the new version must reach.
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

// goal returns the progress that the new version must reach, or why the update must wait.
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

// prune removes versions except the given ones and those that a process executes.
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

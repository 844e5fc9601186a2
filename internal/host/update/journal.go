package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/host/release"
)

// Files in the root of an installation. Everybody may read them.
const (
	// JournalFile is there while an update is between its swap and its confirmation:
	// then [Applier.Recover] has something to do.
	JournalFile = "update.json"
	// failureFile holds the newest version that did not get to work.
	failureFile = "update-failed.json"
)

// phase is how far an update is that has a journal.
type phase string

const (
	forward  phase = "forward"  // towards the new version
	backward phase = "backward" // back to the old one
)

// journal is what must be known to end an update, whoever began it.
type journal struct {
	Phase  phase     `json:"phase"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Wait   Progress  `json:"wait"` // what the new version must get to: as far as the old one was
	Tries  int       `json:"tries"`
	Reason string    `json:"reason,omitempty"` // for going back
	At     time.Time `json:"at"`
}

// check refuses a journal that no update has written.
func (j journal) check() error {
	order, err := compare(j.To, j.From)
	switch {
	case err != nil:
		return err
	case order <= 0:
		return fmt.Errorf("%s is not newer than %s", j.To, j.From)
	case j.Phase != forward && j.Phase != backward:
		return fmt.Errorf("the phase %q is not known", j.Phase)
	case j.Wait != NotRunning && j.Wait != Waiting && j.Wait != Polled:
		return fmt.Errorf("%q cannot be waited for", j.Wait)
	}
	return nil
}

// readJournal returns the journal of an update on its way, or nil.
func readJournal(root *os.Root) (*journal, error) {
	text, err := readIn(root, JournalFile, 16<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no journal is the usual case
	}
	var j journal
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err == nil {
		err = j.check()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal of an update, %s: %w", JournalFile, err)
	}
	return &j, nil
}

func (j *journal) write(root *os.Root) error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return replace(root, JournalFile, text)
}

// forget ends an update.
func forget(root *os.Root) error {
	if err := root.Remove(JournalFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(root, ".")
}

// retryAfter is how long a version that failed is left alone, unless a person asks
// for it.
const retryAfter = 24 * time.Hour

// Failure is a version that did not get to work and was taken back.
type Failure struct {
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
}

// Holds reports whether the version is to be left alone.
func (f Failure) Holds(version string, now time.Time) bool {
	since := now.Sub(f.At)
	// A clock that was set back must not hold a version off for long.
	return f.Version == version && since < retryAfter && since > -retryAfter
}

// Failed returns the newest version that failed here; ok is false if there is none.
func (i Installation) Failed() (f Failure, ok bool, err error) {
	text, err := readPlain(filepath.Join(i.Root, failureFile), 16<<10)
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
		return Failure{}, false, fmt.Errorf("reading which version failed, %s: %w", filepath.Join(i.Root, failureFile), err)
	}
	return f, true, nil
}

// Pending reports whether an update was begun and has not ended: it is on its way, or
// [Applier.Recover] has something to do.
func (i Installation) Pending() bool {
	_, err := os.Lstat(filepath.Join(i.Root, JournalFile))
	return err == nil
}

// Underway returns the versions of an update that was begun and has not ended; ok is
// false if there is none, or none that can be read.
func (i Installation) Underway() (from, to string, ok bool) {
	root, err := os.OpenRoot(i.Root)
	if err != nil {
		return "", "", false
	}
	defer func() { _ = root.Close() }()
	j, err := readJournal(root)
	if err != nil || j == nil {
		return "", "", false
	}
	return j.From, j.To, true
}

func writeFailure(root *os.Root, f Failure) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return replace(root, failureFile, text)
}

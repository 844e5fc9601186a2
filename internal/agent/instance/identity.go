// Package instance manages an agent's state directory, which contains the agent's identity and the
// journal of its jobs.
package instance

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"workflowagent/internal/sys/durable"
	"workflowagent/internal/sys/filelock"
)

const maxInstances = 1000

// Identity is an agent's stable ID and private directory. Only one process uses it at a time.
// Agents on the same host may share a state directory, in which each acquires a free identity. A
// restarted agent finds its previous identity, and with it the journal of its jobs.
type Identity struct {
	ID       string
	Dir      string // private, with mode 0700
	Hostname string
	lock     *filelock.Lock
}

// OpenIdentity locks a free instance directory below stateDir/instances and returns its identity.
// It prefers the first free directory whose journal has jobs, and then the first free directory. If
// none is free, it creates one. The lock is released when the process exits.
func OpenIdentity(stateDir string) (*Identity, error) {
	base := filepath.Join(stateDir, "instances")
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of the agent's identity: %w", err)
	}
	dirs := make([]string, 0, maxInstances)
	for n := range maxInstances {
		dirs = append(dirs, filepath.Join(base, strconv.Itoa(n)))
	}
	orphans, err := filepath.Glob(filepath.Join(base, "*", "jobs", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("searching for jobs of earlier agents in %s: %w", base, err)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(unattended(orphans, b), unattended(orphans, a)) })
	for _, dir := range dirs {
		identity, err := openInstance(dir)
		if _, held := errors.AsType[*filelock.HeldError](err); held {
			continue
		}
		return identity, err
	}
	return nil, fmt.Errorf("%d agents already use the state directory %s: set another state_directory for this agent", maxInstances, stateDir)
}

func unattended(files []string, dir string) int {
	if slices.ContainsFunc(files, func(file string) bool { return filepath.Dir(filepath.Dir(file)) == dir }) {
		return 1
	}
	return 0
}

func openInstance(dir string) (_ *Identity, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the agent's instance directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the agent's instance directory: %w", err)
	}
	lock, err := filelock.Try(f)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Release()
		}
	}()
	id, err := readID(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the agent's id: %w", err)
	}
	if id == "" {
		id = uuid.NewString()
		if err := durable.WriteFile(filepath.Join(dir, "id"), []byte(id+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("storing the agent's id: %w", err)
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown" // for display only
	}
	return &Identity{ID: id, Dir: dir, Hostname: hostname, lock: lock}, nil
}

// Close releases the identity, so that another process can acquire it.
func (i *Identity) Close() error {
	if i.lock == nil {
		return nil
	}
	i.lock.Release()
	return nil
}

// KnownID returns the ID of the first agent in a state directory. It returns "" if no agent exists
// or if the caller cannot read the ID. It changes nothing, so it can be called while the agent is
// running.
func KnownID(stateDir string) string {
	id, _ := readID(filepath.Join(stateDir, "instances", "0"))
	return id
}

// KnownIDs returns the IDs of all agents of a state directory that the caller can read. Like [KnownID], it
// changes nothing.
func KnownIDs(stateDir string) []string {
	dirs, _ := filepath.Glob(filepath.Join(stateDir, "instances", "*")) // fails only for a bad pattern
	var ids []string
	for _, dir := range dirs {
		if id, _ := readID(dir); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// readID returns the ID in an instance directory. It returns "" for a new directory and for an ID
// that a host crash has damaged. In both cases, the agent gets a new ID.
func readID(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "id"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id, err := uuid.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return "", nil //nolint:nilerr // see above
	}
	return id.String(), nil
}

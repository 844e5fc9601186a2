package admin

import (
	"context"
	"time"

	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/fault"
)

// The operations on backups.
var (
	WriteBackup    = Operation[NewBackup, Backup]{"backup-write", (*Service).writeBackup}
	BackupProgress = Operation[None, Progress]{"backup-progress", (*Service).backupProgress}
	// ReleaseRestored ends the pause of a restored installation.
	ReleaseRestored = Operation[ReleaseOf, Release]{"restore-release", (*Service).releaseRestored}
)

// NewBackup is a backup to write.
type NewBackup struct {
	// Dir is the absolute path of the directory of all backups.
	Dir  string `json:"dir"`
	Keep int    `json:"keep,omitempty"`
	// Passphrase seals the master key; "" leaves it out.
	Passphrase string `json:"passphrase,omitempty"`
}

// Backup is a written backup.
type Backup struct {
	Path     string    `json:"path"`
	Time     time.Time `json:"time"`
	Engine   string    `json:"engine"`
	Rows     int64     `json:"rows"`
	Blobs    int64     `json:"blobs"`
	Bytes    int64     `json:"bytes"` // of the blobs
	Linked   int64     `json:"linked"`
	Key      bool      `json:"key"`
	Missing  []string  `json:"missing"`
	Removed  []string  `json:"removed"`
	Problems []string  `json:"problems"`
}

// Progress is how much of the running backup has been written.
type Progress struct {
	Running bool  `json:"running"`
	Rows    int64 `json:"rows"`
	Blobs   int64 `json:"blobs"`
	Bytes   int64 `json:"bytes"`
}

func (s *Service) writeBackup(ctx context.Context, q NewBackup) (Backup, error) {
	r, err := s.Backups.Write(ctx, backup.Request{Dir: q.Dir, Keep: q.Keep, Passphrase: q.Passphrase})
	if err != nil {
		return Backup{}, err
	}
	m := r.Manifest
	b := Backup{
		Path: r.Path, Time: m.Time, Engine: m.Engine, Rows: m.Rows(), Blobs: m.Blobs.Count, Bytes: m.Blobs.Bytes, Linked: r.Linked,
		Key: m.Key != nil, Missing: append([]string{}, m.Missing...), Removed: append([]string{}, r.Removed...), Problems: []string{},
	}
	for _, err := range []error{r.Unremoved, r.Unrecorded} {
		if err != nil {
			b.Problems = append(b.Problems, err.Error())
		}
	}
	return b, nil
}

func (s *Service) backupProgress(context.Context, None) (Progress, error) {
	p, running := s.Backups.Progress()
	return Progress{Running: running, Rows: p.Rows, Blobs: p.Blobs, Bytes: p.Bytes}, nil
}

// ReleaseOf selects an organization by its name, or all if it is "".
type ReleaseOf struct {
	Organization string `json:"organization,omitempty"`
}

// Release names the organizations that were released, and those that remain paused.
type Release struct {
	Released  []string `json:"released"`
	Remaining []string `json:"remaining"`
}

func (s *Service) releaseRestored(ctx context.Context, q ReleaseOf) (Release, error) {
	if s.Recovery == nil {
		return Release{}, fault.Conflict("the server does not run: start it, because only the running server can resume its deployments")
	}
	released, remaining, err := s.Recovery.Release(ctx, q.Organization)
	return Release{append([]string{}, released...), append([]string{}, remaining...)}, err
}

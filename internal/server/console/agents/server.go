package agents

import (
	"context"
	"runtime"
	"time"

	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
)

// Server describes the server to its administrators. A nil function is omitted.
type Server struct {
	Version string
	// Database describes the database without secrets.
	Database string
	Data     string // data directory
	Started  time.Time
	// Subsystems are the names of the background work.
	Subsystems func() []string
	// Ready returns an error while the server is not ready.
	Ready func(ctx context.Context) error
	// Disks are the file systems of the server's data.
	Disks func() []Disk
	// Backups describes the backups of the installation.
	Backups func(ctx context.Context) (Backups, error)
}

// Backups describes the backups of the installation.
type Backups struct {
	Schedule  string // cron expression, or "" if the server writes none by itself
	Directory string // of the backups that the server writes by itself
	backup.Status
}

// sealed says whether the master key is in a backup.
func sealed(b backup.Written) string {
	if b.Key {
		return "sealed in the backup"
	}
	return "not in the backup"
}

// Disk is a file system with data of the server.
type Disk struct {
	Path       string
	Size, Free int64 // in bytes
}

// serverPage is the page about the server.
type serverPage struct {
	Server
	URL, Runtime string
	Problem      string
	Names        []string
	FileSystems  []Disk
	BackedUp     *Backups // nil if unknown
}

func (p *pages) server(v *page.Visit) (view.Page, error) {
	s := serverPage{Server: p.Server, URL: p.URL, Runtime: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	ctx, cancel := context.WithTimeout(v.Context(), readyTimeout)
	defer cancel()
	if s.Ready != nil {
		if err := s.Ready(ctx); err != nil {
			s.Problem = err.Error()
		}
	}
	if s.Subsystems != nil {
		s.Names = s.Subsystems()
	}
	if s.Disks != nil {
		s.FileSystems = s.Disks()
	}
	if s.Backups != nil && s.Problem == "" {
		backups, err := s.Backups(ctx)
		if err != nil {
			return view.Page{}, err
		}
		s.BackedUp = &backups
	}
	return view.ServerPage("Server", "", "", serverBody(s)), nil
}

// readyTimeout bounds the questions about the server's state.
const readyTimeout = 5 * time.Second

// used returns the used part of a file system, in percent.
func (d Disk) used() int64 {
	if d.Size <= 0 {
		return 0
	}
	return (d.Size - d.Free) * 100 / d.Size
}

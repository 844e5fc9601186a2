package server

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/console/agents"
	"workflowagent/internal/sys/diskspace"
)

// describe returns the description of the server for the console.
func (s *Server) describe(version string, backups *backup.Service) agents.Server {
	return agents.Server{
		Version: version, Database: databaseName(s.cfg.DSN()), Data: s.cfg.DataDir, Started: time.Now(),
		Subsystems: func() []string {
			names := make([]string, len(s.subsystems))
			for i, sub := range s.subsystems {
				names[i] = sub.Name
			}
			return names
		},
		Ready: func(ctx context.Context) error {
			return errors.Join(s.db.Ping(ctx), s.db.Writable(ctx))
		},
		Disks: func() []agents.Disk {
			var out []agents.Disk
			dirs := append([]string{s.cfg.DataDir}, s.db.Dirs()...)
			slices.Sort(dirs)
			for _, dir := range slices.Compact(dirs) {
				if size, free, err := diskspace.Of(dir); err == nil {
					out = append(out, agents.Disk{Path: dir, Size: size, Free: free})
				}
			}
			return out
		},
		Backups: func(ctx context.Context) (agents.Backups, error) {
			status, err := backups.Status(ctx)
			return agents.Backups{Schedule: s.cfg.BackupSchedule, Directory: s.cfg.Backups().Dir, Status: status}, err
		},
	}
}

// databaseName returns the name of a database without its password.
func databaseName(dsn string) string {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return "SQLite, " + path
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "PostgreSQL"
	}
	return "PostgreSQL, " + u.Host + u.Path
}

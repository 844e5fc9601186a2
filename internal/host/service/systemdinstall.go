package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kardianos/service"

	"workflowagent/internal/sys/initsystem"
)

// Install writes or replaces the unit and reloads systemd. A running service keeps its program
// until it is restarted. If systemd rejects the new unit, Install restores the old unit.
func (s *systemd) Install() error {
	ctx := context.Background() // each call has its own time limit
	if err := s.rights(); err != nil {
		return err
	}
	if err := s.masked(); err != nil {
		return err
	}
	version, err := s.manager().Version(ctx)
	if err != nil && !s.options.Packaged {
		return err
	}
	if s.packaged {
		s.options.Executable = resolved(s.options.Executable) // the real path, because the links in /usr/bin have several names
	}
	if !s.options.User {
		if err := sharesState([]string{adminUnits, packageUnits}, s.unit(), s.options.Account); err != nil && !s.options.Packaged {
			return err
		}
		if err := ensureAccount(ctx, s.commands, s.options.Account); err != nil {
			return err
		}
		if err := initsystem.Reachable(s.options.Executable, s.options.Account, reachAdvice); err != nil {
			return err
		}
		// A package upgrade must not fail for a reason that only prevents the service from
		// starting.
		if s.options.Docker && !s.options.Packaged {
			if err := groupExists("docker"); err != nil {
				return err
			}
		}
		if err := shareConfig(s.options.Config, s.options.Account); err != nil {
			return err
		}
	}
	if s.options.Updates == nil {
		if err := s.forgetUpdates(ctx); err != nil {
			return err
		}
	}
	undo, err := initsystem.ReplaceAll(s.registrations(version)...)
	if err != nil {
		return fmt.Errorf("writing the unit: %w", err)
	}
	if s.options.Packaged {
		return nil
	}
	if _, err := s.ctl(ctx, "daemon-reload"); err != nil {
		return s.restore(ctx, undo, err)
	}
	for _, unit := range s.allUnits() {
		loaded, err := s.ctl(ctx, "show", "--property=LoadState", "--value", unit)
		if err == nil && loaded == "masked" && unit == s.unit() {
			return s.restore(ctx, undo, s.errMasked())
		}
		if err != nil || loaded != "loaded" && loaded != "masked" {
			return s.restore(ctx, undo, errors.Join(fmt.Errorf("systemd did not load the unit (LoadState=%q): run systemctl status %s", loaded, unit), err))
		}
	}
	return nil
}

// masked returns an error if an administrator has masked the unit, because installing the unit
// would remove the mask.
func (s *systemd) masked() error {
	if resolved(s.File()) == os.DevNull {
		return s.errMasked()
	}
	return nil
}

func (s *systemd) errMasked() error {
	user := ""
	if s.options.User {
		user = "--user "
	}
	return fmt.Errorf("the service is masked: first run systemctl %sunmask %s", user, s.options.Name)
}

// sharesState returns an error if another service uses a different account. All services share the
// state directory, and systemd changes the directory's owner to the account of each service that
// starts.
func sharesState(dirs []string, unit, account string) error {
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.service"))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			_, rest, ours := strings.Cut(string(text), "\nUser=")
			other, _, _ := strings.Cut(rest, "\n")
			if err != nil || !ours || other == account || filepath.Base(file) == unit || !strings.Contains(rest, "\nStateDirectory="+stateName+"\n") {
				continue
			}
			return fmt.Errorf("the service %s has its state in /var/lib/%s as the user %s, and all services share that directory: choose --account %s",
				strings.TrimSuffix(filepath.Base(file), ".service"), stateName, other, other)
		}
	}
	return nil
}

func (s *systemd) registrations(version int) []initsystem.File {
	files := []initsystem.File{{Path: s.File(), Text: s.render(version)}}
	if s.packaged {
		return files
	}
	var path, helper []byte
	if s.options.Updates != nil {
		path, helper = s.renderUpdates(version)
	}
	return append(files, initsystem.File{Path: s.updatePath(), Text: path}, initsystem.File{Path: s.updateUnit(), Text: helper})
}

func (s *systemd) allUnits() []string {
	units := []string{s.unit()}
	if s.options.Updates != nil {
		units = append(units, filepath.Base(s.updatePath()), filepath.Base(s.updateUnit()))
	}
	return units
}

func (s *systemd) updatePath() string { return filepath.Join(s.units, updateName(s.options)+".path") }

func (s *systemd) updateUnit() string {
	return filepath.Join(s.units, updateName(s.options)+".service")
}

// forgetUpdates disables the update helper if it exists. An update in progress continues.
func (s *systemd) forgetUpdates(ctx context.Context) error {
	if s.packaged || !exists(s.updatePath()) && !exists(s.updateUnit()) {
		return nil
	}
	if _, err := s.ctl(ctx, "disable", "--now", filepath.Base(s.updatePath())); err != nil {
		return err
	}
	_, err := s.ctl(ctx, "disable", filepath.Base(s.updateUnit()))
	return err
}

func (s *systemd) restore(ctx context.Context, undo func() error, cause error) error {
	err := undo()
	if err == nil {
		_, err = s.ctl(ctx, "daemon-reload")
	}
	if err != nil {
		return errors.Join(cause, fmt.Errorf("restoring the previous unit: %w", err))
	}
	return cause
}

func (s *systemd) Enable(ctx context.Context) error {
	if _, err := s.ctl(ctx, append([]string{"enable"}, s.allUnits()...)...); err != nil || s.options.Updates == nil {
		return err
	}
	// Make the helper watch with the new unit immediately.
	_, err := s.ctl(ctx, "restart", filepath.Base(s.updatePath()))
	return err
}

// Uninstall stops the service and removes its unit. The jobs, the configuration and the state
// remain.
func (s *systemd) Uninstall() error {
	ctx := context.Background()
	if err := s.rights(); err != nil {
		return err
	}
	if s.packaged {
		return fmt.Errorf("the service belongs to a package: remove that with apt or dnf, or disable the service with: systemctl disable --now %s", s.options.Name)
	}
	if err := s.masked(); err != nil {
		return err
	}
	if _, err := os.Lstat(s.File()); errors.Is(err, os.ErrNotExist) {
		return service.ErrNotInstalled
	}
	if _, err := s.ctl(ctx, "disable", "--now", s.unit()); err != nil {
		return err
	}
	units := []string{s.unit()}
	if exists(s.updateUnit()) {
		units = append(units, filepath.Base(s.updateUnit()))
	}
	if err := s.forgetUpdates(ctx); err != nil {
		return err
	}
	if _, err := initsystem.ReplaceAll(initsystem.File{Path: s.updatePath()}, initsystem.File{Path: s.updateUnit()}, initsystem.File{Path: s.File()}); err != nil {
		return err
	}
	if _, err := s.ctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	// A failed unit is listed until it is reset. If there is no failed unit, the command fails
	// without effect.
	_, _ = s.ctl(ctx, append([]string{"reset-failed"}, units...)...)
	return os.RemoveAll(choicesFile(s))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/host/release"
)

type maker struct {
	options
	root    string    // root of the repository
	time    time.Time // the commit's time, used for all files that must be reproducible
	targets []platform
	files   string // directory with the release's files, as published
	scratch string // directory for this run; only its owner may enter
	staged  string // directory with files for archives and packages, for this run
	leftOut []string
	notes   []string // messages for the operator

	key       *releaseKey
	gpg       *gpg   // nil if this machine has no gpg
	publicPEM []byte // the keys that programs trust
}

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func supported() []platform {
	return []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

// newMaker completes the options and prepares the directories. The caller must call close.
func newMaker(ctx context.Context, o options) (_ *maker, err error) {
	m := &maker{options: o}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.root, err = repository(); err != nil {
		return nil, err
	}
	if m.targets, err = parsePlatforms(o.platforms); err != nil {
		return nil, &usageError{err}
	}
	if m.time, err = commitTime(ctx, m.root); err != nil {
		return nil, err
	}
	changed, err := isChanged(ctx, m.root)
	if err != nil {
		return nil, err
	}
	if changed {
		m.notes = append(m.notes, "the checkout has uncommitted changes: this release cannot be reproduced")
	}
	if m.version == "" {
		if m.version, err = versionOf(ctx, m.root, m.time, changed); err != nil {
			return nil, err
		}
	}
	if err := release.CheckVersion(m.version); err != nil {
		return nil, &usageError{err}
	}
	if m.home, err = checkHome(m.home); err != nil {
		return nil, err
	}
	if m.home == "" {
		m.notes = append(m.notes, "RELEASE_HOME is not set: programs have no update URL, install.sh requires --mirror, and no .sources and .repo files were created")
	}
	if m.dist, err = filepath.Abs(m.dist); err != nil {
		return nil, fmt.Errorf("finding the output directory: %w", err)
	}
	if m.mirror == "" {
		m.mirror = filepath.Join(m.dist, "mirror")
	}
	if m.scratch, err = os.MkdirTemp("", "maker-"); err != nil { // only its owner may enter
		return nil, fmt.Errorf("creating a directory for this run: %w", err)
	}
	m.files = filepath.Join(m.dist, "release")
	return m, nil
}

func (m *maker) close() {
	if m.gpg != nil {
		m.gpg.close()
	}
	for _, dir := range []string{m.scratch, m.staged} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
}

func (m *maker) make(ctx context.Context) error {
	todo, err := m.plan()
	if err != nil {
		return err
	}
	for _, s := range todo {
		fmt.Println("--- " + s.name)
		if err := s.run(m, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	m.report()
	return nil
}

// plan returns the steps that this machine can run, and records the others in leftOut.
func (m *maker) plan() ([]step, error) {
	var todo []step
	for _, s := range steps() {
		if missing := missingTools(s.needs); len(missing) > 0 {
			m.leftOut = append(m.leftOut, s.name+": needs "+strings.Join(missing, ", "))
			continue
		}
		todo = append(todo, s)
	}
	if m.require && len(m.leftOut) > 0 {
		return nil, errors.New("this machine cannot create a complete release, which -require-all demands; missing:\n  " + strings.Join(m.leftOut, "\n  "))
	}
	return todo, nil
}

func (m *maker) report() {
	fmt.Printf("\ncreated %s:\n  %s\n  %s\n", m.version, m.files, m.mirror)
	for _, part := range m.leftOut {
		fmt.Println("LEFT OUT " + part)
	}
	for _, note := range m.notes {
		fmt.Println("NOTE " + note)
	}
}

func parsePlatforms(list string) ([]platform, error) {
	if list == "" {
		return supported(), nil
	}
	var targets []platform
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for _, p := range supported() {
			if p.String() == name {
				targets, found = append(targets, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("the platform %q is unknown; use one of %v", name, supported())
		}
	}
	return targets, nil
}

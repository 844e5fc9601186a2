// Package mirror brings releases of pulumi, with their language hosts, from a mirror to the agent. The
// operator pins the releases: a file lists their SHA-256 sums, and no other file of the mirror is used.
package mirror

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// Config is the part of the agent's configuration for the mirror.
type Config struct {
	// Location is the absolute path of a directory with the archives of releases, or its URL. If it is
	// empty, jobs run the pulumi of their image or host.
	Location string
	// Checksums is a file with the SHA-256 sums of the archives.
	Checksums string
}

const (
	// bringTime bounds how long a release may take from the mirror to the agent's directory.
	bringTime = 15 * time.Minute
	// keepTime is how long an unused release is kept.
	keepTime = 30 * 24 * time.Hour
	// draftTime is the time after which no call can still need its draft.
	draftTime = 24 * time.Hour
	// maxChecksums limits the size of the file with checksums, in bytes.
	maxChecksums = 4 << 20
)

// Mirror brings releases into one directory.
type Mirror struct {
	config Config
	dir    string
	client *http.Client
	log    *logrus.Entry
	busy   chan struct{} // holds an element while a release is brought
}

// New returns a mirror that keeps its releases in dir. transport fetches the archives.
func New(c Config, dir string, transport http.RoundTripper, log *logrus.Entry) *Mirror {
	return &Mirror{config: c, dir: dir, client: &http.Client{Transport: transport}, log: log, busy: make(chan struct{}, 1)}
}

// IsURL reports whether the location of a mirror is a URL, which cannot contain credentials.
func IsURL(location string) bool {
	at, err := url.Parse(location)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "" && at.User == nil
}

// archive is a pinned archive of a release.
type archive struct {
	name    string
	version workflow.Version
	sum     [32]byte
}

// key is the name of the release's directory.
func (a archive) key() string {
	return strings.TrimSuffix(a.name, ".tar.gz") + "-" + hex.EncodeToString(a.sum[:8])
}

// Bring returns the directory with the newest pinned release of a range for a platform. If no release
// fits, it returns the zero [executor.Pulumi].
func (m *Mirror) Bring(ctx context.Context, wanted workflow.VersionRange, goos, goarch string, progress func(line string)) (executor.Pulumi, error) {
	found, err := m.find(wanted, goos, goarch)
	if err != nil || found == nil {
		return executor.Pulumi{}, err
	}
	dir := filepath.Join(m.dir, found.key())
	err = use(dir)
	if errors.Is(err, fs.ErrNotExist) {
		progress(fmt.Sprintf("Bringing pulumi %s from the mirror", found.version))
		err = m.unpackOnce(ctx, *found, dir)
	}
	if ctx.Err() != nil {
		return executor.Pulumi{}, context.Cause(ctx)
	}
	if err != nil {
		// Without its cause, an error of the network is not mistaken for one of a container engine.
		return executor.Pulumi{}, &executor.Error{
			Reason: workflow.ReasonLaunch, Message: fmt.Sprintf("The agent could not bring pulumi %s from its mirror: %v", found.version, err),
		}
	}
	progress(fmt.Sprintf("Using pulumi %s of the mirror, as %s selects", found.version, wanted))
	return executor.Pulumi{Version: found.version.String(), Dir: dir}, nil
}

// use records that a job uses a release. It returns [fs.ErrNotExist] if the release is not kept.
func use(dir string) error {
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// unpackOnce brings a release unless a call for another job does so.
func (m *Mirror) unpackOnce(ctx context.Context, a archive, dir string) error {
	limited, cancel := context.WithTimeout(ctx, bringTime)
	defer cancel()
	select {
	case m.busy <- struct{}{}:
		defer func() { <-m.busy }()
	case <-limited.Done():
		return fmt.Errorf("another release is being brought: %w", limited.Err())
	}
	if err := use(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.unpack(limited, a, dir); err != nil {
		return err
	}
	m.prune(time.Now())
	return nil
}

var archiveName = regexp.MustCompile(`^pulumi-v(\d+\.\d+\.\d+)-([a-z]+)-([a-z0-9]+)\.tar\.gz$`)

// platforms maps the architectures of Go to those in the names of archives.
var platforms = map[string]string{"amd64": "x64", "arm64": "arm64"}

// find returns the pinned archive of the newest release in a range for a platform, or nil.
func (m *Mirror) find(wanted workflow.VersionRange, goos, goarch string) (*archive, error) {
	pinned, err := ReadChecksums(m.config.Checksums)
	if err != nil {
		return nil, &executor.Error{Reason: workflow.ReasonLaunch, Message: "The agent could not read pulumi_checksums_file: " + err.Error(), Err: err}
	}
	var newest *archive
	for name, sum := range pinned {
		parts := archiveName.FindStringSubmatch(name)
		if parts == nil || parts[2] != goos || parts[3] != platforms[goarch] {
			continue
		}
		version, err := workflow.ParseVersion(parts[1])
		if err != nil || !wanted.Contains(version) || newest != nil && newest.version.Compare(version) > 0 {
			continue
		}
		newest = &archive{name: name, version: version, sum: sum}
	}
	return newest, nil
}

// ReadChecksums reads a file in the format of sha256sum. It maps the names of files to their sums.
func ReadChecksums(path string) (map[string][32]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxChecksums+1))
	if err == nil && len(data) > maxChecksums {
		err = errors.New("the file is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	sums := map[string][32]byte{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		sum, err := hex.DecodeString(fields[0])
		if err != nil || len(sum) != 32 || len(fields) != 2 {
			return nil, fmt.Errorf("%s:%d: a line must be a SHA-256 sum in hexadecimal and the name of an archive", path, number)
		}
		name := strings.TrimPrefix(fields[1], "*") // the mark of binary files
		if known, twice := sums[name]; twice && known != [32]byte(sum) {
			return nil, fmt.Errorf("%s:%d: %s is listed twice, with different sums", path, number, name)
		}
		sums[name] = [32]byte(sum)
	}
	return sums, nil
}

// prune removes the releases that no job has used for a long time, and what interrupted calls left.
func (m *Mirror) prune(now time.Time) {
	entries, err := os.ReadDir(m.dir)
	for _, entry := range entries {
		limit := keepTime
		if strings.HasPrefix(entry.Name(), draftPrefix) {
			limit = draftTime
		}
		info, infoErr := entry.Info()
		if infoErr == nil && now.Sub(info.ModTime()) > limit {
			err = cmp.Or(err, os.RemoveAll(filepath.Join(m.dir, entry.Name())))
		}
	}
	if err != nil {
		m.log.WithError(err).Warn("removing unused releases of pulumi failed")
	}
}

// Package update updates an installation to the newest signed release. It has two parts that do not
// trust each other.
//
// A [Finder] runs as the agent's account. It uses go-selfupdate to find releases on GitHub or in a
// directory on a plain HTTP server. It checks a release's signature and checksum, and stages the
// release: it stores three files and a request in a directory.
//
// An [Applier] installs a staged release. It can run as root while the stage belongs to another
// user. It copies the files first, checks the copy with the keys in its own binary, tries the new
// program, swaps all programs with a single rename, and restarts the service. If the new version
// does not work, it rolls back. With a journal, each step is safe against a crash of the process or
// the machine.
package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	upstream "github.com/creativeprojects/go-selfupdate"

	"workflowagent/internal/host/release"
)

// Options configure a [Finder].
type Options struct {
	// Home is the URL at which releases are published. It is one of: https://github.com/OWNER/REPO,
	// the URL of a directory on any HTTP server (a mirror), or the REST API of another GitHub
	// server, such as github+https://github.example.com/api/v3/OWNER/REPO.
	Home    string
	Channel string       // release.Stable or release.Beta; "" means release.Stable
	Keys    release.Keys // trusted keys, one of which must have signed a release
	// Client provides the proxies and certificate authorities. Only its transport is used, with
	// this package's limits on time and size. If Client is nil, Go's default transport is used.
	Client *http.Client
	// Memory is a file that records the newest known channel file, to detect replays. If it is "",
	// nothing is recorded.
	Memory string

	goos, goarch string // set by tests; "" means this machine's values
}

// Finder finds releases and stages them. It is safe for concurrent use.
type Finder struct {
	Options

	home *url.URL // without the prefix github+
	// The GitHub repository; "" for a mirror.
	owner, repo string
}

// ErrNotFound is returned if a release does not exist for this platform.
var ErrNotFound = errors.New("no such release")

// ErrDevelopment is returned by a build that has no version to compare with a release.
var ErrDevelopment = errors.New("this is a development build without a version to compare with a release: install a release")

const findTime = 2 * time.Minute

// Open returns a finder. It sends no requests.
func Open(o Options) (*Finder, error) {
	o.Channel = cmp.Or(o.Channel, release.Stable)
	if o.goos == "" {
		o.goos, o.goarch = runtime.GOOS, runtime.GOARCH
	}
	if len(o.Keys) == 0 {
		return nil, release.ErrNoKeys
	}
	if o.Channel != release.Stable && o.Channel != release.Beta {
		return nil, fmt.Errorf("the update channel %q is unknown: use %s or %s", o.Channel, release.Stable, release.Beta)
	}
	if o.Home == "" {
		return nil, errors.New("this build has no release URL: name the URL of a mirror")
	}
	f := &Finder{Options: o}
	text, api := strings.CutPrefix(o.Home, "github+")
	home, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || home.Host == "" || home.Scheme != "https" && home.Scheme != "http" || home.RawQuery != "" || home.Fragment != "" {
		// The URL and the parser's error can contain a password.
		return nil, errors.New("the release URL must look like https://github.com/OWNER/REPO or https://mirror.example.com/DIRECTORY")
	}
	f.home = home
	if api || strings.EqualFold(home.Hostname(), "github.com") {
		parts := strings.Split(strings.Trim(home.Path, "/"), "/")
		n := len(parts)
		if n < 2 || !api && n != 2 {
			return nil, fmt.Errorf("the release URL %s must end with OWNER/REPO", home.Redacted())
		}
		f.owner, f.repo = parts[n-2], parts[n-1]
		f.home = &url.URL{Scheme: "https", Host: "api.github.com", Path: "/"}
		if api {
			f.home = &url.URL{Scheme: home.Scheme, User: home.User, Host: home.Host, Path: "/" + strings.Join(append(parts[:n-2], ""), "/")}
		}
	}
	if _, err := release.Archive("v0.0.1", o.goos, o.goarch); err != nil {
		return nil, err
	}
	return f, nil
}

// Candidate is a release that was found. It has not been verified, except for a mirror's channel
// file.
type Candidate struct {
	Version   string
	Published time.Time // zero if unknown
	Notes     string    // URL of a web page, or ""

	source upstream.Source
	found  *upstream.Release
}

// Newer reports whether the candidate is newer than the running version. A version from git
// describe, such as v1.2.3-4-gabcdef, counts as v1.2.3. Newer returns [ErrDevelopment] for a build
// without a version.
func (c Candidate) Newer(current string) (bool, error) { return newer(c.Version, current) }

// describe matches the suffix that git describe appends to a tag.
var describe = regexp.MustCompile(`(-\d+-g[0-9a-f]{4,40})?(-dirty)?$`)

func newer(candidate, current string) (bool, error) {
	base := describe.ReplaceAllString(current, "")
	if release.CheckVersion(base) != nil || strings.HasPrefix(base, "v0.0.0") {
		return false, ErrDevelopment
	}
	order, err := compare(candidate, base)
	return order > 0, err
}

func compare(a, b string) (int, error) {
	if err := errors.Join(release.CheckVersion(a), release.CheckVersion(b)); err != nil {
		return 0, err
	}
	va, errA := semver.StrictNewVersion(a[1:])
	vb, errB := semver.StrictNewVersion(b[1:])
	if err := errors.Join(errA, errB); err != nil {
		return 0, fmt.Errorf("comparing %s with %s: %w", a, b, err)
	}
	return va.Compare(vb), nil
}

// Latest returns the newest release in the channel. It returns [ErrNotFound] if none exists for
// this platform, and [ErrReplay] if the mirror serves an older state than it did before.
func (f *Finder) Latest(ctx context.Context) (Candidate, error) {
	c, err := f.find(ctx, "")
	if err != nil {
		return Candidate{}, fmt.Errorf("finding the newest %s release at %s: %w", f.Channel, f.shown(), err)
	}
	return c, nil
}

// Version returns the release with the given version, from any channel.
func (f *Finder) Version(ctx context.Context, version string) (Candidate, error) {
	if err := release.CheckVersion(version); err != nil {
		return Candidate{}, err
	}
	c, err := f.find(ctx, version)
	if err != nil {
		return Candidate{}, fmt.Errorf("finding the release %s at %s: %w", version, f.shown(), err)
	}
	return c, nil
}

// shown returns the home URL without its password.
func (f *Finder) shown() string {
	if f.owner != "" {
		return f.home.Redacted() + " (" + f.owner + "/" + f.repo + ")"
	}
	return f.home.Redacted()
}

func (f *Finder) find(ctx context.Context, want string) (Candidate, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	// A source serves one search and stores the search's result.
	source := f.newSource(want)
	updater, err := upstream.NewUpdater(upstream.Config{
		Source: source, Validator: f.validator(), OS: f.goos, Arch: f.goarch,
		// The source returns only the matching archive. Without a filter, the updater would expect
		// another name.
		Filters: []string{`^` + regexp.QuoteMeta(release.Program) + `-v.*\.tar\.gz$`}, Prerelease: f.Channel == release.Beta,
	})
	if err != nil {
		return Candidate{}, err
	}
	found, ok, err := updater.DetectVersion(ctx, upstream.NewRepositorySlug(f.owner, f.repo), want)
	if err != nil {
		return Candidate{}, err
	}
	if !ok {
		return Candidate{}, fmt.Errorf("%w for %s/%s", ErrNotFound, f.goos, f.goarch)
	}
	return Candidate{Version: "v" + found.Version(), Published: found.PublishedAt, Notes: found.URL, source: source, found: found}, nil
}

// validator returns the chain of checks: the checksum list verifies the archive, and the signature
// verifies the checksum list.
func (f *Finder) validator() *upstream.PatternValidator {
	return new(upstream.PatternValidator).
		Add(release.ChecksumsFile, signature{f.Keys}).
		SkipValidation("*"+release.SignatureSuffix).
		Add("*", &upstream.ChecksumValidator{UniqueFilename: release.ChecksumsFile})
}

// signature is a validator that accepts a signature by any of several keys. go-selfupdate's
// validator does not support several keys.
type signature struct{ keys release.Keys }

func (s signature) Validate(name string, data, signature []byte) error {
	if err := s.keys.Verify(data, signature); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s signature) GetValidationAssetName(name string) string { return name + release.SignatureSuffix }

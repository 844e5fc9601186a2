// Package update keeps an installation at the newest signed release. It has two halves that do not
// trust each other.
//
// A [Finder], running as the agent's account, finds releases with go-selfupdate, at GitHub or in a
// plain HTTP directory, checks signature and checksum, and stages one: three files in a directory,
// with a request.
//
// An [Applier] installs a staged release. It may run as root while the stage belongs to another
// user: it copies first, checks the copy with the keys of its own binary, tries the new program,
// swaps all programs by one rename, restarts the service, and rolls back if the new version does
// not work. A journal makes every step safe against a crash of the process or the machine.
package update

import (
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
	// Home is where releases are published: https://github.com/OWNER/REPO, a directory on any HTTP
	// server (a mirror), or the REST API of another GitHub as in
	// github+https://github.example.com/api/v3/OWNER/REPO.
	Home    string
	Channel string       // release.Stable or release.Beta; "": release.Stable
	Keys    release.Keys // any of which must have signed
	// Client provides the proxies and certificate authorities: only its transport is used, with
	// this package's limits on time and size. nil: Go's default transport.
	Client *http.Client
	// Memory is a file with the newest channel file seen, against replays; "" records nothing.
	Memory string

	goos, goarch string // tests change them; "" means this machine
}

// Finder finds releases and stages them. It is safe for concurrent use.
type Finder struct {
	Options

	home *url.URL // without github+
	// Of a GitHub; "" for a mirror.
	owner, repo string
}

// ErrNotFound is returned for a release that does not exist for this platform.
var ErrNotFound = errors.New("no such release")

// ErrDevelopment is returned by a build without a version to compare.
var ErrDevelopment = errors.New("this is a development build without a version to compare with a release: install a release")

const findTime = 2 * time.Minute

// Open returns a finder. It makes no request.
func Open(o Options) (*Finder, error) {
	if o.Channel == "" {
		o.Channel = release.Stable
	}
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
		// The text and the parser's error may hold a password.
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

// Candidate is a found release, not verified yet except for a mirror's channel file.
type Candidate struct {
	Version   string
	Published time.Time // zero if unknown
	Notes     string    // a web page, or ""

	source upstream.Source
	found  *upstream.Release
}

// Newer reports whether the candidate is newer than the running version; git describe's
// v1.2.3-4-gabcdef counts as v1.2.3. It returns [ErrDevelopment] for a build without a version.
func (c Candidate) Newer(current string) (bool, error) { return newer(c.Version, current) }

// describe is the suffix that git describe adds after a tag.
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

// Latest returns the newest release of the channel. It returns [ErrNotFound] if none exists for
// this platform, and [ErrReplay] if the mirror serves an older state than before.
func (f *Finder) Latest(ctx context.Context) (Candidate, error) {
	c, err := f.find(ctx, "")
	if err != nil {
		return Candidate{}, fmt.Errorf("finding the newest %s release at %s: %w", f.Channel, f.shown(), err)
	}
	return c, nil
}

// Version returns one release, from any channel.
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

// shown is the home without a password.
func (f *Finder) shown() string {
	if f.owner != "" {
		return f.home.Redacted() + " (" + f.owner + "/" + f.repo + ")"
	}
	return f.home.Redacted()
}

func (f *Finder) find(ctx context.Context, want string) (Candidate, error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	// A source serves one search and holds its result.
	source := f.newSource(want)
	updater, err := upstream.NewUpdater(upstream.Config{
		Source: source, Validator: f.validator(), OS: f.goos, Arch: f.goarch,
		// The source returns only the matching archive, whose name the updater would not expect.
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

// validator returns the chain of checks: the checksums verify the archive, and the signature
// verifies the checksums.
func (f *Finder) validator() *upstream.PatternValidator {
	return new(upstream.PatternValidator).
		Add(release.ChecksumsFile, signature{f.Keys}).
		SkipValidation("*"+release.SignatureSuffix).
		Add("*", &upstream.ChecksumValidator{UniqueFilename: release.ChecksumsFile})
}

// signature accepts any of several keys, which go-selfupdate's validator does not support.
type signature struct{ keys release.Keys }

func (s signature) Validate(name string, data, signature []byte) error {
	if err := s.keys.Verify(data, signature); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s signature) GetValidationAssetName(name string) string { return name + release.SignatureSuffix }

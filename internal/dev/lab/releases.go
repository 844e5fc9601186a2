package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The releases of [MakeReleases].
const (
	FirstRelease = "v1.0.0"
	NextRelease  = "v1.1.0"
	// ReleaseHome is where these releases and install.sh look for updates. A test may listen there
	// or name the URL of its own server.
	ReleaseHome = "http://127.0.0.1:47180"
)

// Releases are signed releases of this checkout for this platform, made by "make packages". All
// tests of a run share the files and must not change them.
type Releases struct {
	// Mirror is the directory to serve over HTTP. It has one directory per version, and the
	// repositories apt and yum.
	Mirror     string
	PublicKey  string // file: the release key as PEM
	PrivateKey string // file: its private half, for tests to sign with
	ArchiveKey string // file: the GPG key of packages and repositories, armored
}

// Dir returns the directory with the files of a version.
func (r Releases) Dir(version string) string { return filepath.Join(r.Mirror, version) }

// releasesKept is how long the cache keeps releases of other source states after their last use.
const releasesKept = 3 * time.Hour

// ReleasesAvailable reports whether this machine can make releases, and if not what it lacks.
func ReleasesAvailable() (reason string, ok bool) {
	for program, from := range map[string]string{
		"make": "make", "gpg": "gnupg", "apt-ftparchive": "apt-utils", "createrepo_c": "createrepo-c",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("%s is not installed (package %s)", program, from), false
		}
	}
	return "", true
}

// MakeReleases finds [FirstRelease] and [NextRelease] of this checkout in the cache, or makes them,
// which takes about a minute (and once five more for goreleaser) and is reported on progress. Both
// have the same sources and are signed by the keys of this machine.
func MakeReleases(ctx context.Context, progress io.Writer) (Releases, error) {
	root, err := Root()
	if err != nil {
		return Releases{}, err
	}
	key, err := releaseFingerprint(ctx, root)
	if err != nil {
		return Releases{}, fmt.Errorf("looking for what releases are made from: %w", err)
	}
	dir, err := cached(ctx, releasesName, key, func(draft string) error {
		for _, version := range []string{FirstRelease, NextRelease} {
			if err := makeRelease(ctx, root, draft, version, progress); err != nil {
				return err
			}
		}
		return keepReleaseKey(draft)
	})
	if err != nil {
		return Releases{}, err
	}
	forgetReleases(dir)
	mirror := filepath.Join(dir, "mirror")
	return Releases{
		Mirror:     mirror,
		PublicKey:  filepath.Join(mirror, "release-key.pem"),
		PrivateKey: filepath.Join(dir, "release.pem"),
		ArchiveKey: filepath.Join(mirror, "apt", "customer-managed-workflow-agent.asc"),
	}, nil
}

const releasesName = "releases"

// releaseFingerprint depends on the content of every file that may be released.
func releaseFingerprint(ctx context.Context, root string) (string, error) {
	cmd := command(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the files of the checkout: %w", err)
	}
	var key fingerprint
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if !isReleased(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but still in git's index
		} else if err != nil {
			return "", err
		}
		key.add(name, string(text))
	}
	version, err := goVersion(ctx, root)
	if err != nil {
		return "", err
	}
	key.add("go", version)
	return key.sum(), nil
}

func isReleased(name string) bool {
	for _, dir := range []string{"docs/", "internal/dev/e2e/", "internal/dev/bench/", "internal/dev/lab/", "internal/dev/layers/", "internal/dev/tools/", "examples/", ".ci/"} {
		if strings.HasPrefix(name, dir) {
			return false
		}
	}
	return !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".md") && !strings.Contains(name, "/testdata/")
}

// Packages is one run of "make packages" for this platform, with the keys of this machine.
type Packages struct {
	Checkout string // root of the repository
	Version  string
	Dist     string
	Mirror   string   // "" = in Dist
	Env      []string // whole environment; nil = the current one
}

// Make runs it and reports its progress.
func (p Packages) Make(ctx context.Context, progress io.Writer) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	cmd := command(ctx, "make", "packages", "CACHE="+cache, "VERSION="+p.Version, "DIST="+p.Dist,
		"MIRROR="+p.Mirror, "PLATFORM="+runtime.GOOS+"/"+runtime.GOARCH,
		"RELEASE_HOME="+ReleaseHome, "RELEASE_KEY_FILE=", "RELEASE_TRUST_FILE=", "GPG_KEY_FILE=", "REQUIRE=all")
	cmd.Dir = p.Checkout
	env := p.Env
	if env == nil {
		env = os.Environ()
	}
	for _, variable := range env {
		// Variables of a make that started the tests.
		if name, _, _ := strings.Cut(variable, "="); name != "MAKEFLAGS" && name != "MFLAGS" && name != "MAKELEVEL" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	watch := newBuildWatch(progress, "creating the release "+p.Version)
	defer watch.stop()
	cmd.Stdout, cmd.Stderr = watch, watch
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("creating the release %s: %w\n%s", p.Version, err, watch.tail())
	}
	return nil
}

func makeRelease(ctx context.Context, root, dir, version string, progress io.Writer) error {
	dist, err := os.MkdirTemp("", "lab-release-")
	if err != nil {
		return fmt.Errorf("creating %s: %w", version, err)
	}
	defer func() { _ = os.RemoveAll(dist) }()
	run := Packages{Checkout: root, Version: version, Dist: dist, Mirror: filepath.Join(dir, "mirror")}
	return run.Make(ctx, progress)
}

func keepReleaseKey(dir string) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(cache, "release-keys", "release.pem"))
	if err != nil {
		return fmt.Errorf("reading the key that signed the releases: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "release.pem"), key, 0o600); err != nil {
		return fmt.Errorf("keeping the key that signed the releases: %w", err)
	}
	return nil
}

// forgetReleases deletes unused releases of other source states: every change to the product makes
// new ones, and they are large.
func forgetReleases(used string) {
	now := time.Now()
	_ = os.Chtimes(used, now, now) // on failure they are made again one day
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(used), releasesName+"-*"))
	for _, dir := range all {
		if info, err := os.Stat(dir); err == nil && dir != used && now.Sub(info.ModTime()) > releasesKept {
			_ = os.RemoveAll(dir) // the next run deletes the rest
		}
	}
}

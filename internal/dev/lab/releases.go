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

	"workflowagent/internal/dev/lab/child"
)

// Versions of the releases that [MakeReleases] returns.
const (
	FirstRelease = "v1.0.0"
	NextRelease  = "v1.1.0"
	// ReleaseHome is the address at which these releases and install.sh check for updates. Tests
	// that serve them elsewhere override it.
	ReleaseHome = "http://127.0.0.1:47180"
)

// Releases are signed releases of this checkout for this platform, created by "make packages". All
// tests of a run share the files and must not change them.
type Releases struct {
	// Mirror is the directory to serve over HTTP. It holds one directory per version, and the
	// repositories apt and yum.
	Mirror     string
	PublicKey  string // file: the release key as PEM
	PrivateKey string // file: the private release key, for signing in tests
	ArchiveKey string // file: the GPG key of packages and repositories, armored
}

// Dir returns the directory with the files of a version.
func (r Releases) Dir(version string) string { return filepath.Join(r.Mirror, version) }

// releasesKept is the time that the cache keeps releases of other source states after their last
// use.
const releasesKept = 3 * time.Hour

// ReleasesAvailable reports whether this machine can build releases, and if not, which program is
// missing.
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

// MakeReleases returns [FirstRelease] and [NextRelease] of this checkout. If they are not in the
// cache, it creates them, which takes about a minute (plus five minutes once for goreleaser) and is
// reported on progress. Both releases have the same sources and are signed with this machine's
// keys.
func MakeReleases(ctx context.Context, progress io.Writer) (Releases, error) {
	root, err := Root()
	if err != nil {
		return Releases{}, err
	}
	key, err := releaseFingerprint(ctx, root)
	if err != nil {
		return Releases{}, fmt.Errorf("reading release files: %w", err)
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

// releaseFingerprint returns a key that depends on the content of every file that is an input of a
// release.
func releaseFingerprint(ctx context.Context, root string) (string, error) {
	cmd := child.Command(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("listing the checkout's files: %w", err)
	}
	var key fingerprint
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if !isReleased(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but still in the index
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

// Packages describes one run of "make packages" for this platform, with this machine's keys.
type Packages struct {
	Checkout string // root of the repository
	Version  string
	Dist     string
	Mirror   string   // "" = in Dist
	Env      []string // complete environment; nil = the current one
}

// Make runs "make packages" and reports its progress.
func (p Packages) Make(ctx context.Context, progress io.Writer) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	cmd := child.Command(ctx, "make", "packages", "CACHE="+cache, "VERSION="+p.Version, "DIST="+p.Dist,
		"MIRROR="+p.Mirror, "PLATFORM="+runtime.GOOS+"/"+runtime.GOARCH,
		"RELEASE_HOME="+ReleaseHome, "RELEASE_KEY_FILE=", "RELEASE_TRUST_FILE=", "GPG_KEY_FILE=", "REQUIRE=all")
	cmd.Dir = p.Checkout
	env := p.Env
	if env == nil {
		env = os.Environ()
	}
	for _, variable := range env {
		// A make that started the tests sets these variables.
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
		return fmt.Errorf("storing the key that signed the releases: %w", err)
	}
	return nil
}

// forgetReleases deletes unused releases of other source states. Each change to the product leads
// to new releases, which are large.
func forgetReleases(used string) {
	now := time.Now()
	_ = os.Chtimes(used, now, now) // after a failure, the next run builds them again
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(used), releasesName+"-*"))
	for _, dir := range all {
		if info, err := os.Stat(dir); err == nil && dir != used && now.Sub(info.ModTime()) > releasesKept {
			_ = os.RemoveAll(dir) // the next run deletes the remaining ones
		}
	}
}

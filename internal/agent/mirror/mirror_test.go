package mirror_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/mirror"
	"workflowagent/internal/workflow"
)

// site is a mirror with archives, and the directory in which releases are kept.
type site struct {
	t        *testing.T
	dir      string
	kept     string
	sums     string
	lines    []string
	progress []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, dir: t.TempDir(), kept: filepath.Join(t.TempDir(), "pulumi"), sums: filepath.Join(t.TempDir(), "sums")}
}

// add adds an archive with the given files to the mirror, and pins it.
func (s *site) add(name string, files ...*tar.Header) {
	s.t.Helper()
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	for _, f := range files {
		content := []byte("#!/bin/sh\necho " + name + "\n")
		if f.Typeflag == tar.TypeReg {
			f.Size = int64(len(content))
		}
		f.Mode = 0o755
		s.must(w.WriteHeader(f))
		if f.Typeflag == tar.TypeReg {
			_, err := w.Write(content)
			s.must(err)
		}
	}
	s.must(w.Close())
	s.must(z.Close())
	s.must(os.WriteFile(filepath.Join(s.dir, name), archive.Bytes(), 0o600))
	s.pin(fmt.Sprintf("%x  %s", sha256.Sum256(archive.Bytes()), name))
}

func (s *site) pin(line string) {
	s.t.Helper()
	s.lines = append(s.lines, line)
	s.must(os.WriteFile(s.sums, []byte(strings.Join(s.lines, "\n")+"\n"), 0o600))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) mirror(location string) *mirror.Mirror {
	log := logrus.New()
	log.SetOutput(s.t.Output())
	return mirror.New(mirror.Config{Location: location, Checksums: s.sums}, s.kept, http.DefaultTransport, logrus.NewEntry(log))
}

func (s *site) bring(m *mirror.Mirror, wanted, goarch string) (executor.Pulumi, error) {
	s.t.Helper()
	r, err := workflow.ParseVersionRange(wanted)
	s.must(err)
	return m.Bring(s.t.Context(), r, "linux", goarch, func(line string) { s.progress = append(s.progress, line) })
}

func program(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name}
}

// release returns the files of a release.
func release() []*tar.Header {
	return []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "pulumi/"}, program("pulumi/pulumi"), program("pulumi/pulumi-language-yaml"),
	}
}

func TestBring(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{
		"pulumi-v3.9.0-linux-x64.tar.gz", "pulumi-v3.10.1-linux-x64.tar.gz", "pulumi-v3.11.0-linux-arm64.tar.gz", "pulumi-v4.0.0-darwin-x64.tar.gz",
	} {
		s.add(name, release()...)
	}
	s.pin("# a comment")
	s.pin(strings.Repeat("0", 64) + " *other.zip")
	files := http.FileServer(http.Dir(s.dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip") // some servers declare the compression of an archive
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, location := range []string{s.dir, server.URL} {
		s.kept = filepath.Join(t.TempDir(), "pulumi")
		m := s.mirror(location)
		for _, c := range []struct{ wanted, goarch, version string }{
			{"3", "amd64", "3.10.1"},
			{"3.9.0", "amd64", "3.9.0"},
			{"<3.10", "amd64", "3.9.0"},
			{"3", "arm64", "3.11.0"},
			{"3.11", "amd64", ""},
			{"4", "amd64", ""},
			{"3", "riscv64", ""},
		} {
			got, err := s.bring(m, c.wanted, c.goarch)
			if err != nil || got.Version != c.version || (got.Dir == "") != (c.version == "") {
				t.Errorf("%s for %s is %+v, %v; want %q", c.wanted, c.goarch, got, err, c.version)
			}
			if got.Dir == "" {
				continue
			}
			for _, name := range []string{"pulumi", "pulumi-language-yaml"} {
				content, err := os.ReadFile(filepath.Join(got.Dir, name))
				info, statErr := os.Stat(filepath.Join(got.Dir, name))
				if err != nil || statErr != nil || !strings.Contains(string(content), "pulumi-v"+c.version+"-linux") || info.Mode().Perm() != 0o755 {
					t.Errorf("the release contains %q (%v, %v)", content, err, info.Mode())
				}
			}
		}
	}
	// A release that is kept needs no mirror.
	server.Close()
	s.must(os.Remove(filepath.Join(s.dir, "pulumi-v3.9.0-linux-x64.tar.gz")))
	if got, err := s.bring(s.mirror(server.URL), "3.9.0", "amd64"); err != nil || got.Version != "3.9.0" {
		t.Errorf("the kept release is %+v, %v", got, err)
	}
}

// TestUnusableArchives checks that an archive that is missing, changed or no release is an error, and that
// nothing of it is kept.
func TestUnusableArchives(t *testing.T) {
	const name = "pulumi-v3.1.0-linux-x64.tar.gz"
	for _, c := range []struct {
		what, want string
		do         func(s *site)
	}{
		{"missing", "no such file", func(s *site) { s.must(os.Remove(filepath.Join(s.dir, name))) }},
		{"changed", "does not have the pinned SHA-256 sum", func(s *site) {
			s.must(os.WriteFile(filepath.Join(s.dir, name), []byte("changed"), 0o600))
		}},
		{"truncated", "does not have the pinned SHA-256 sum", func(s *site) { s.must(os.Truncate(filepath.Join(s.dir, name), 100)) }},
		{"no archive", "unpacking", func(s *site) {
			s.must(os.WriteFile(filepath.Join(s.dir, name), []byte("text"), 0o600))
			s.lines = nil
			s.pin(fmt.Sprintf("%x  %s", sha256.Sum256([]byte("text")), name))
		}},
		{"without pulumi", "does not contain pulumi/pulumi", func(s *site) { s.lines = nil; s.add(name, program("pulumi/other")) }},
		{"outside", "does not contain pulumi/pulumi", func(s *site) {
			s.lines = nil
			s.add(name, program("../pulumi"), program("pulumi/../../pulumi/pulumi"), program("/pulumi/pulumi"))
		}},
		{"link", "does not contain pulumi/pulumi", func(s *site) {
			s.lines = nil
			s.add(name, &tar.Header{Typeflag: tar.TypeSymlink, Name: "pulumi/pulumi", Linkname: "/bin/sh"})
		}},
		{"twice", "file exists", func(s *site) { s.lines = nil; s.add(name, program("pulumi/pulumi"), program("pulumi/pulumi")) }},
		{"pinned twice", "is listed twice", func(s *site) { s.pin(strings.Repeat("0", 64) + "  " + name) }},
		{"no sums", "a line must be", func(s *site) { s.pin("nothing") }},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newSite(t)
			s.add(name, release()...)
			c.do(s)
			got, err := s.bring(s.mirror(s.dir), "3", "amd64")
			if err == nil || got.Dir != "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v; want an error with %q", got, err, c.want)
			}
			if left, err := os.ReadDir(s.kept); err == nil && len(left) > 0 {
				t.Errorf("%v is kept", left)
			}
		})
	}
}

func TestMirrorThatRefuses(t *testing.T) {
	s := newSite(t)
	s.add("pulumi-v3.1.0-linux-x64.tar.gz", release()...)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := s.bring(s.mirror(server.URL), "3", "amd64")
	if err == nil || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("the error is %v", err)
	}
}

// TestBringAtOnce checks that jobs that start together share one download, that kept releases do not wait
// for it, and that a job that is cancelled meanwhile does not, either.
func TestBringAtOnce(t *testing.T) {
	s := newSite(t)
	s.add("pulumi-v3.1.0-linux-x64.tar.gz", release()...)
	s.add("pulumi-v3.2.0-linux-x64.tar.gz", release()...)
	arrived, answer := make(chan struct{}, 10), make(chan struct{})
	files := http.FileServer(http.Dir(s.dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "3.2.0") {
			arrived <- struct{}{}
			<-answer
		}
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	m := s.mirror(server.URL)
	_, err := s.bring(m, "3.1", "amd64")
	s.must(err)
	wanted, err := workflow.ParseVersionRange("3.2")
	s.must(err)
	ends := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := m.Bring(t.Context(), wanted, "linux", "amd64", func(string) {})
			ends <- err
		}()
	}
	<-arrived
	if _, err := s.bring(m, "3.1", "amd64"); err != nil {
		t.Errorf("a kept release: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Bring(cancelled, wanted, "linux", "amd64", func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a job that is cancelled gets %v", err)
	}
	close(answer)
	for range 3 {
		s.must(<-ends)
	}
	if len(arrived) > 0 {
		t.Errorf("%d further downloads", len(arrived))
	}
}

// TestUnusedReleasesAreRemoved checks that releases and drafts that are no longer needed are removed when
// another release is brought.
func TestUnusedReleasesAreRemoved(t *testing.T) {
	s := newSite(t)
	s.add("pulumi-v3.1.0-linux-x64.tar.gz", release()...)
	s.add("pulumi-v3.2.0-linux-x64.tar.gz", release()...)
	s.add("pulumi-v3.3.0-linux-x64.tar.gz", release()...)
	m := s.mirror(s.dir)
	old, err := s.bring(m, "3.1", "amd64")
	s.must(err)
	used, err := s.bring(m, "3.2", "amd64")
	s.must(err)
	past := time.Now().Add(-31 * 24 * time.Hour)
	draft := filepath.Join(s.kept, ".draft-1")
	s.must(os.Mkdir(draft, 0o755))
	for _, dir := range []string{old.Dir, used.Dir} {
		s.must(os.Chtimes(dir, past, past))
	}
	s.must(os.Chtimes(draft, past.Add(29*24*time.Hour), past.Add(29*24*time.Hour)))
	_, err = s.bring(m, "3.2", "amd64")
	s.must(err)
	_, err = s.bring(m, "3.3", "amd64")
	s.must(err)
	for dir, want := range map[string]bool{old.Dir: false, draft: false, used.Dir: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it kept: %v", dir, err, want)
		}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

// tinyProgram returns the header of a static Linux program, which suffices for an image.
func tinyProgram(arch string) string {
	machine := map[string]string{"amd64": "\x3e\x00", "arm64": "\xb7\x00"}[arch]
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + machine + "\x01\x00\x00\x00" + strings.Repeat("\x00", 28) + "\x40\x00\x38\x00\x00\x00\x40\x00\x00\x00\x00\x00"
}

func writeTestArchive(t *testing.T, m *maker, name, arch string, programs ...string) {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	w := tar.NewWriter(zipped)
	dir := strings.TrimSuffix(name, ".tar.gz") + "/"
	for _, program := range programs {
		text := tinyProgram(arch)
		if strings.HasSuffix(program, "embeddable") {
			text = tinyProgram("amd64")
		} else if strings.HasSuffix(program, "-arm64") {
			text = tinyProgram("arm64")
		}
		must.OK(t, w.WriteHeader(&tar.Header{Name: dir + program, Mode: 0o755, Size: int64(len(text))}))
		must.Get(io.WriteString(w, text))(t)
	}
	// Images omit links and files in subdirectories, even if they have a program's name.
	for _, header := range []tar.Header{
		{Name: dir + release.OldName, Linkname: release.Program, Typeflag: tar.TypeSymlink},
		{Name: dir + "man/" + programs[0], Mode: 0o644},
	} {
		must.OK(t, w.WriteHeader(&header))
	}
	must.OK(t, w.Close())
	must.OK(t, zipped.Close())
	write(t, filepath.Join(m.files, name), buf.Bytes())
}

func withArchives(t *testing.T, m *maker) {
	t.Helper()
	for _, p := range m.targets {
		agent := must.Get(release.Archive(m.version, p.os, p.arch))(t)
		writeTestArchive(t, m, agent, p.arch, release.Programs()...)
		server := must.Get(release.ServerArchive(m.version, p.os, p.arch))(t)
		writeTestArchive(t, m, server, p.arch, release.Server, release.Evaluator)
	}
}

func TestImages(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(registry.New())
	defer server.Close()
	m := newTestMaker(t)
	m.version, m.targets, m.dist, m.push = "v1.2.3", supported(), t.TempDir(), strings.TrimPrefix(server.URL, "http://")+"/team"
	withArchives(t, m)
	must.OK(t, m.images(t.Context()))
	revision := strings.TrimSpace(command(t, m.root, "git", "rev-parse", "HEAD"))
	for _, repository := range []string{"customer-managed-workflow-agent", "customer-managed-deployment-agent", "workflow-server"} {
		ref := must.Get(name.ParseReference(m.push + "/" + repository + ":latest-arm64"))(t)
		pushed := must.Get(remote.Image(ref))(t)
		config := must.Get(pushed.ConfigFile())(t)
		if labels := config.Config.Labels; config.Architecture != "arm64" || labels["org.opencontainers.image.revision"] != revision || labels["org.opencontainers.image.version"] != "v1.2.3" {
			t.Errorf("%s is for %s and has the labels %v", ref, config.Architecture, labels)
		}
	}
	listed := strings.Fields(string(read(t, filepath.Join(m.files, imagesFile))))
	if len(listed) != 6 {
		t.Errorf("%s lists %q", imagesFile, listed)
	}
	for _, line := range listed {
		ref, digest, _ := strings.Cut(line, "@")
		tag := must.Get(name.NewTag(m.push + "/" + ref))(t)
		if head, err := remote.Head(tag); err != nil || head.Digest.String() != digest {
			t.Errorf("%s lists %s, pushed is %v, %v", imagesFile, line, head, err)
		}
	}
	started := regexp.MustCompile(`IMAGE:-(\S+)}`).FindAllStringSubmatch(string(read(t, filepath.Join(m.files, composeFile))), -1)
	if len(started) != 3 {
		t.Fatalf("%s names the images %q", composeFile, started)
	}
	for _, image := range started {
		if strings.HasPrefix(image[1], "postgres:") {
			continue
		}
		if _, err := remote.Head(must.Get(name.NewTag(image[1]))(t)); err != nil {
			t.Errorf("%s names %s: %v", composeFile, image[1], err)
		}
	}
	tag := must.Get(name.NewTag("workflow-server:v1.2.3-amd64"))(t)
	if _, err := tarball.ImageFromPath(filepath.Join(m.dist, "images", "workflow-server-v1.2.3.tar"), &tag); err != nil {
		t.Error(err)
	}

	m.push = ""
	must.OK(t, m.composition())
	if text := string(read(t, filepath.Join(m.files, composeFile))); !strings.Contains(text, "SERVER_IMAGE:-workflow-server:v1.2.3-"+runtime.GOARCH+"}") {
		t.Errorf("without a registry, %s does not name a loaded image:\n%s", composeFile, text)
	}

	m.targets, m.dist = []platform{{"darwin", "arm64"}}, t.TempDir()
	if err := m.images(t.Context()); err != nil || !slices.ContainsFunc(m.notes, func(note string) bool { return strings.Contains(note, "no images") }) {
		t.Errorf("without Linux: %v, %v", err, m.notes)
	}
	m.targets, m.version = []platform{{"linux", "amd64"}}, "v9.9.9"
	if err := m.images(t.Context()); err == nil {
		t.Error("images were built from missing archives")
	}
}

func TestFormulaStep(t *testing.T) {
	m := newTestMaker(t)
	m.version, m.targets = "v1.2.3", supported()
	withArchives(t, m)
	must.OK(t, m.formula(t.Context()))
	text := read(t, filepath.Join(m.files, "customer-managed-workflow-agent.rb"))
	for _, p := range m.targets {
		name := must.Get(release.Archive(m.version, p.os, p.arch))(t)
		archive := read(t, filepath.Join(m.files, name))
		want := fmt.Sprintf("url \"%s/v1.2.3/%s\"\n      sha256 \"%x\"\n", m.home, name, sha256.Sum256(archive))
		if !strings.Contains(string(text), want) {
			t.Errorf("the formula does not contain\n%s\n%s", want, text)
		}
	}
	m.home, m.files = "", t.TempDir()
	if err := m.formula(t.Context()); err != nil || len(m.notes) == 0 {
		t.Errorf("without a home: %v, %v", err, m.notes)
	}
}

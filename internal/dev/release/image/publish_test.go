package image

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"workflowagent/internal/dev/must"
)

func TestPush(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	prefix := strings.TrimPrefix(server.URL, "http://") + "/team"
	s := testSet(t, Agent(), testRelease)
	for range 2 { // the second time over existing images
		pushed := must.Get(s.Push(t.Context(), prefix+"/"))(t)
		var want []string
		for _, repository := range []string{"customer-managed-workflow-agent", "customer-managed-deployment-agent"} {
			for _, tag := range []string{"v1.2.3", "latest"} {
				for _, suffix := range []string{"-amd64", "-arm64", ""} {
					want = append(want, prefix+"/"+repository+":"+tag+suffix)
				}
			}
		}
		if !slices.Equal(pushed, want) {
			t.Errorf("pushed %v", pushed)
		}
	}
	index := must.Get(s.Index())(t)
	digest := must.Get(index.Digest())(t)
	for _, tagged := range []string{"customer-managed-workflow-agent:latest", "customer-managed-deployment-agent:v1.2.3"} {
		ref := must.Get(name.ParseReference(prefix + "/" + tagged))(t)
		got, err := remote.Get(ref)
		if err != nil || got.Digest != digest {
			t.Fatalf("%s is %v, %v", tagged, got, err)
		}
		if stored, err := got.ImageIndex(); err != nil {
			t.Error(err)
		} else if err := validate.Index(stored); err != nil {
			t.Error(err)
		}
		for _, arch := range []string{"amd64", "arm64"} {
			image := must.Get(remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch})))(t)
			if config, err := image.ConfigFile(); err != nil || config.Architecture != arch {
				t.Errorf("%s for %s: %v, %v", tagged, arch, config, err)
			}
		}
	}
	if _, err := s.Push(t.Context(), "not a registry"); err == nil || !strings.Contains(err.Error(), "REGISTRY/PREFIX") {
		t.Errorf("got %v", err)
	}
	server.Close()
	if _, err := s.Push(t.Context(), prefix); err == nil {
		t.Error("pushed to an unreachable registry")
	}
}

func TestArchive(t *testing.T) {
	s := testSet(t, Agent(), testRelease)
	file := filepath.Join(t.TempDir(), "images.tar")
	var buf bytes.Buffer
	must.OK(t, s.WriteArchive(&buf))
	must.OK(t, os.WriteFile(file, buf.Bytes(), 0o600))
	for _, tagged := range []string{"customer-managed-workflow-agent:v1.2.3-arm64", "customer-managed-deployment-agent:latest-arm64"} {
		tag := must.Get(name.NewTag(tagged))(t)
		image, err := tarball.ImageFromPath(file, &tag)
		if err != nil {
			t.Fatalf("%s: %v", tagged, err)
		}
		if err := validate.Image(image); err != nil {
			t.Error(err)
		}
		got, err := image.ConfigName()
		want, err2 := s.Images["arm64"].ConfigName()
		if err != nil || err2 != nil || got != want {
			t.Errorf("%s is %s, %v, %v", tagged, got, err, err2)
		}
	}

	dir := t.TempDir()
	unpack(t, &buf, dir)
	index := must.Get(layout.ImageIndexFromPath(dir))(t)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest := must.Get(index.IndexManifest())(t)
	short := map[string]int{}
	long := map[string]bool{}
	for _, d := range manifest.Manifests {
		if name := d.Annotations["org.opencontainers.image.ref.name"]; name != "" {
			short[name]++
		}
		long[d.Annotations["io.containerd.image.name"]] = true
	}
	if len(short) != 6 || short["v1.2.3"] != 1 || short["latest-amd64"] != 1 {
		t.Errorf("the names in the layout are %v", short)
	}
	if len(long) != 12 || !long["docker.io/library/customer-managed-deployment-agent:latest"] {
		t.Errorf("the names for containerd are %v", long)
	}
}

func unpack(t *testing.T, archive io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must.OK(t, err)
		text := must.Get(io.ReadAll(r))(t)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, text, 0o600))
	}
}

// TestCertificates checks that all certificates can be parsed and include a widely used authority.
func TestCertificates(t *testing.T) {
	text := must.Get(certificates())(t)
	var names []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		root := must.Get(x509.ParseCertificate(block.Bytes))(t)
		if !root.IsCA {
			t.Errorf("%s is not a certificate authority", root.Subject)
		}
		names = append(names, root.Subject.CommonName)
	}
	if len(names) < 80 || !slices.Contains(names, "ISRG Root X1") {
		t.Errorf("%d authorities: %v", len(names), names)
	}
}

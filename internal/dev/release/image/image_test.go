package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"workflowagent/internal/dev/must"
)

// program returns the smallest Linux program for a machine. If interpreted is set, the program is
// not static.
func program(t *testing.T, machine elf.Machine, interpreted bool) []byte {
	t.Helper()
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	var buf bytes.Buffer
	if interpreted {
		header.Phoff, header.Phnum = 64, 1
	}
	parts := []any{header}
	if interpreted {
		parts = append(parts, elf.Prog64{Type: uint32(elf.PT_INTERP)})
	}
	for _, part := range parts {
		must.OK(t, binary.Write(&buf, binary.LittleEndian, part))
	}
	return buf.Bytes()
}

func programs(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	for name, text := range map[string][]byte{
		"customer-managed-workflow-agent": program(t, machine, false), "workflow-runner": program(t, machine, false), "workflow-server": program(t, machine, false),
		"workflow-esc":               program(t, machine, false),
		"workflow-runner-embeddable": program(t, elf.EM_X86_64, false), "workflow-runner-embeddable-arm64": program(t, elf.EM_AARCH64, false),
		"LICENSE": []byte("a license\n"),
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o755))
	}
	return dir
}

var testRelease = Release{
	Version: "v1.2.3", Revision: "0123456789abcdef", Source: "https://code.example.com/workflowagent",
	Created: time.Date(2026, 11, 22, 3, 4, 5, 0, time.UTC),
}

func testSet(t *testing.T, p Product, r Release) Set {
	t.Helper()
	s := Set{Product: p, Release: r, Images: map[string]v1.Image{}}
	for _, arch := range []string{"amd64", "arm64"} {
		image := must.Get(r.Image(p, arch, programs(t, arch)))(t)
		s.Images[arch] = image
	}
	return s
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		product Product
		title   string
		want    v1.Config
	}{
		{Agent(), "Customer-managed workflow agent", v1.Config{
			Entrypoint: []string{"/usr/bin/customer-managed-workflow-agent"}, Cmd: []string{"run"},
			Env:     []string{"PATH=/usr/bin", "HOME=/var/lib/workflow-agent", "PULUMI_AGENT_STATE_DIRECTORY=/var/lib/workflow-agent"},
			Volumes: map[string]struct{}{"/var/lib/workflow-agent": {}},
		}},
		{Server(), "Workflow server", v1.Config{
			Entrypoint: []string{"/usr/bin/workflow-server"}, Cmd: []string{"serve"},
			Env:     []string{"PATH=/usr/bin", "HOME=/var/lib/workflow-server", "WORKFLOW_SERVER_DATA_DIR=/var/lib/workflow-server", "WORKFLOW_SERVER_LISTEN=:8800"},
			Volumes: map[string]struct{}{"/var/lib/workflow-server": {}}, ExposedPorts: map[string]struct{}{"8800/tcp": {}},
			Healthcheck: &v1.HealthConfig{
				Test:     []string{"CMD", "/usr/bin/workflow-server", "healthcheck", "--timeout", "8s"},
				Interval: 5 * time.Second, Timeout: 10 * time.Second, StartPeriod: 2 * time.Minute, Retries: 3,
			},
		}},
	} {
		for arch, image := range testSet(t, tt.product, testRelease).Images {
			config := must.Get(image.ConfigFile())(t)
			want := tt.want
			want.User, want.WorkingDir = "65532:65532", "/"
			want.Labels = map[string]string{
				"org.opencontainers.image.title": tt.title, "org.opencontainers.image.version": "v1.2.3",
				"org.opencontainers.image.created": "2026-11-22T03:04:05Z", "org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.revision": testRelease.Revision, "org.opencontainers.image.source": testRelease.Source,
			}
			if diff := cmp.Diff(want, config.Config); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.title, diff)
			}
			if config.OS != "linux" || config.Architecture != arch || !config.Created.Equal(testRelease.Created) {
				t.Errorf("%s is for %s/%s, created %s", tt.title, config.OS, config.Architecture, config.Created)
			}
		}
	}
}

// TestFiles checks the kind and owner of every file of the agent's image, and that the programs'
// user can write to only one directory.
func TestFiles(t *testing.T) {
	got := map[string]string{}
	image := testSet(t, Agent(), testRelease).Images["arm64"]
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.OK(t, err)
		text := must.Get(io.ReadAll(r))(t)
		got[h.Name] = fmt.Sprintf("%c %04o %d:%d %s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname)
		if !h.ModTime.Equal(testRelease.Created) {
			t.Errorf("%s is of %s", h.Name, h.ModTime)
		}
		if h.Name == "etc/passwd" && !strings.Contains(string(text), "\nworkflow:x:65532:65532:Customer-managed workflow agent:/var/lib/workflow-agent:/sbin/nologin\n") {
			t.Errorf("passwd is %s", text)
		}
	}
	const dir, file, exe, link = "5 0755 0:0 ", "0 0644 0:0 ", "0 0755 0:0 ", "2 0777 0:0 "
	lib := "usr/lib/customer-managed-workflow-agent/"
	want := map[string]string{
		"etc": dir, "etc/passwd": file, "etc/group": file, "etc/ssl": dir, "etc/ssl/certs": dir, "etc/ssl/certs/ca-certificates.crt": file,
		"tmp": "5 1777 0:0 ", "usr": dir, "usr/bin": dir, "usr/lib": dir, "usr/local": dir, "usr/local/bin": dir, "var": dir, "var/lib": dir, "var/lib/workflow-agent": "5 0700 65532:65532 ",
		"usr/bin/customer-managed-workflow-agent":   link + "/usr/lib/customer-managed-workflow-agent/customer-managed-workflow-agent",
		"usr/bin/customer-managed-deployment-agent": link + "customer-managed-workflow-agent",
		"usr/local/bin/workflow-runner":             link + "/usr/lib/customer-managed-workflow-agent/workflow-runner",
		strings.TrimSuffix(lib, "/"):                dir, lib + "LICENSE": file,
		lib + "customer-managed-workflow-agent": exe, lib + "workflow-runner": exe,
		lib + "workflow-runner-embeddable": exe, lib + "workflow-runner-embeddable-arm64": exe,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files (-want +got):\n%s", diff)
	}
}

// TestSameBytes checks that two builds from files with different times and paths are identical.
func TestSameBytes(t *testing.T) {
	for _, p := range []Product{Agent(), Server()} {
		var archives [2]bytes.Buffer
		var digests [2]v1.Hash
		for i := range archives {
			s := testSet(t, p, testRelease)
			must.OK(t, s.WriteArchive(&archives[i]))
			digests[i] = must.Get(must.Get(s.Index())(t).Digest())(t)
		}
		if digests[0] != digests[1] || !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
			t.Errorf("%s differs: %v", p.title, digests)
		}
		other := testRelease
		other.Version = "v1.2.4"
		index := must.Get(testSet(t, p, other).Index())(t)
		if digest, err := index.Digest(); err != nil || digest == digests[0] {
			t.Errorf("another version of %s has the same digest: %v", p.title, err)
		}
	}
}

func TestWrongPrograms(t *testing.T) {
	for name, text := range map[string][]byte{
		"not a Linux program": []byte("#!/bin/sh\n"),
		"for AARCH64":         program(t, elf.EM_AARCH64, false),
		"not static":          program(t, elf.EM_X86_64, true),
	} {
		dir := programs(t, "amd64")
		must.OK(t, os.WriteFile(filepath.Join(dir, "workflow-runner"), text, 0o755))
		if _, err := testRelease.Image(Agent(), "amd64", dir); err == nil || !strings.Contains(err.Error(), "workflow-runner: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := testRelease.Image(Agent(), "riscv64", programs(t, "amd64")); err == nil {
		t.Error("an image was built for an unsupported processor")
	}
	if _, err := testRelease.Image(Server(), "amd64", t.TempDir()); err == nil || !strings.Contains(err.Error(), "workflow-server") {
		t.Errorf("without programs: %v", err)
	}
}

func TestTags(t *testing.T) {
	for version, want := range map[string][]string{"v1.2.3": {"v1.2.3", "latest"}, "v1.3.0-rc.1": {"v1.3.0-rc.1"}} {
		if got := Tags(version); !slices.Equal(got, want) {
			t.Errorf("%s has the tags %v", version, got)
		}
	}
}

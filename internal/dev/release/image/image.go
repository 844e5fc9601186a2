// Package image builds a release's container images from its programs, reproducibly and without an
// engine, and writes them to an archive or a registry.
package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/host/release"
)

// UID is the user and group ID of the programs. Cluster policies often allow this ID, because other
// images without a shell use it as well.
const UID = 65532

// Product is the content of an image.
type Product struct {
	// Repositories are the image's names in a registry, with former names last.
	Repositories []string

	title    string
	dir      string            // directory of the programs in the image
	programs []string          // files in dir, for the image's own processor
	anyOther []string          // files in dir, for Linux on any processor
	links    map[string]string // symbolic links and their targets
	state    string            // the only directory that the user may write to
	command  []string
	env      []string
	port     string
	health   *v1.HealthConfig // nil if the image has no health check
}

// Agent returns the content of the agent's image, with the runners that the agent copies into job
// containers.
func Agent() Product {
	const dir, state = "/usr/lib/" + release.Program, "/var/lib/workflow-agent"
	return Product{
		Repositories: []string{release.Program, release.OldName},
		title:        "Customer-managed workflow agent",
		dir:          dir,
		programs:     []string{release.Program, executor.RunnerName},
		anyOther:     []string{"workflow-runner-embeddable", "workflow-runner-embeddable-arm64"},
		links: map[string]string{
			"/usr/bin/" + release.Program: dir + "/" + release.Program,
			"/usr/bin/" + release.OldName: release.Program,
			// Pods copy the runner from this path.
			"/usr/local/bin/" + executor.RunnerName: dir + "/" + executor.RunnerName,
		},
		state:   state,
		command: []string{"/usr/bin/" + release.Program, "run"},
		env:     []string{"HOME=" + state, "PULUMI_AGENT_STATE_DIRECTORY=" + state},
	}
}

// Server returns the content of the control plane's image.
func Server() Product {
	const dir, state = "/usr/lib/workflow-server", "/var/lib/workflow-server"
	return Product{
		Repositories: []string{"workflow-server"},
		title:        "Workflow server",
		dir:          dir,
		programs:     []string{release.Server, release.Evaluator},
		links:        map[string]string{"/usr/bin/workflow-server": dir + "/workflow-server"},
		state:        state,
		command:      []string{"/usr/bin/workflow-server", "serve"},
		env:          []string{"HOME=" + state, "WORKFLOW_SERVER_DATA_DIR=" + state, "WORKFLOW_SERVER_LISTEN=:8800"},
		port:         "8800/tcp",
		// The start can take a long time, because it upgrades the database. Kubernetes does not use this, but its own probes.
		health: &v1.HealthConfig{
			Test:     []string{"CMD", "/usr/bin/workflow-server", "healthcheck", "--timeout", "8s"},
			Interval: 5 * time.Second, Timeout: 10 * time.Second, StartPeriod: 2 * time.Minute, Retries: 3,
		},
	}
}

// Release is the source of the images' labels and date.
type Release struct {
	Version  string // v1.2.3
	Revision string // commit
	Source   string // URL, or ""
	Created  time.Time
}

// Image builds the image for linux/arch from the directory programs, which contains the programs of
// that platform's release archive.
func (r Release) Image(p Product, arch, programs string) (v1.Image, error) {
	files, err := p.files(arch, programs)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	if err := writeTree(&archive, files, r.Created); err != nil {
		return nil, fmt.Errorf("writing the image's files: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("creating the image's layer: %w", err)
	}
	created := v1.Time{Time: r.Created.UTC()}
	var ports map[string]struct{}
	if p.port != "" {
		ports = map[string]struct{}{p.port: {}}
	}
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", UID, UID),
			Env:        append([]string{"PATH=/usr/bin"}, p.env...),
			Entrypoint: p.command[:1], Cmd: p.command[1:],
			WorkingDir:   "/",
			Volumes:      map[string]struct{}{p.state: {}},
			ExposedPorts: ports,
			Healthcheck:  p.health,
			Labels:       r.labels(p),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	base = mutate.ConfigMediaType(mutate.MediaType(base, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: created, CreatedBy: "make packages", Comment: r.Version},
	})
	if err != nil {
		return nil, fmt.Errorf("assembling the image: %w", err)
	}
	return image, nil
}

func (r Release) labels(p Product) map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":    p.title,
		"org.opencontainers.image.version":  r.Version,
		"org.opencontainers.image.created":  r.Created.UTC().Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	for name, value := range map[string]string{"revision": r.Revision, "source": r.Source} {
		if value != "" {
			labels["org.opencontainers.image."+name] = value
		}
	}
	return labels
}

// files returns an image's files. Root owns all of them, except for the directory to which the
// programs may write.
func (p Product) files(arch, programs string) ([]entry, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	id := strconv.Itoa(UID)
	files := []entry{
		{path: "/etc/passwd", text: []byte("root:x:0:0:root:/:/sbin/nologin\nworkflow:x:" + id + ":" + id + ":" + p.title + ":" + p.state + ":/sbin/nologin\n")},
		{path: "/etc/group", text: []byte("root:x:0:\nworkflow:x:" + id + ":\n")},
		{path: "/etc/ssl/certs/ca-certificates.crt", text: roots},
		{path: "/tmp", mode: 0o1777, isDir: true},
		{path: p.state, mode: 0o700, isDir: true, owner: UID},
	}
	for _, name := range slices.Concat(p.programs, p.anyOther) {
		text, err := os.ReadFile(filepath.Join(programs, name))
		if err != nil {
			return nil, fmt.Errorf("reading a program of the image: %w", err)
		}
		if err := checkProgram(text, arch, slices.Contains(p.anyOther, name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, entry{path: p.dir + "/" + name, text: text, mode: 0o755})
	}
	for name, target := range p.links {
		files = append(files, entry{path: name, link: target})
	}
	if license, err := os.ReadFile(filepath.Join(programs, "LICENSE")); err == nil {
		files = append(files, entry{path: p.dir + "/LICENSE", text: license})
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the license: %w", err)
	}
	return files, nil
}

// checkProgram returns an error for a program that cannot run in the image, because it is not for
// Linux, is for another processor, or is not static: the image has no loader and no libraries.
func checkProgram(text []byte, arch string, anyProcessor bool) error {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	machine, ok := machines[arch]
	if !ok {
		return fmt.Errorf("unsupported platform linux/%s", arch)
	}
	file, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return errors.New("the file is not a Linux program")
	}
	if file.Machine != machine && !anyProcessor {
		return fmt.Errorf("the program is for %s, not for %s", strings.TrimPrefix(file.Machine.String(), "EM_"), arch)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the program is not static")
		}
	}
	return nil
}

package service

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
)

// builtVersion is the version of the agent that these tests build. Their releases are copies of
// this agent in which another version of the same length replaces builtVersion, because linking
// takes longer than everything else.
const builtVersion = "v100.200.300"

type publisher struct {
	mirror string
	key    *ecdsa.PrivateKey
	agent  []byte // program of builtVersion
	runner []byte
	turn   time.Time // time in the newest channel file
}

// updatable holds an agent that trusts a test key. The agent is built once.
var updatable struct {
	once  sync.Once
	key   *ecdsa.PrivateKey
	agent []byte
	err   error
}

func buildUpdatable() ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	public, err := signing.PublicPEM(key)
	if err != nil {
		return nil, nil, err
	}
	root, err := lab.Root()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "e2e-updatable-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built := filepath.Join(dir, "agent")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", built, "-ldflags",
		"-s -w -X main.version="+builtVersion+" -X workflowagent/internal/host/release.publicKeys="+base64.StdEncoding.EncodeToString(public),
		"./cmd/customer-managed-workflow-agent")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("building the agent: %w\n%s", err, out)
	}
	agent, err := os.ReadFile(built)
	return agent, key, err
}

func newPublisher(t *testing.T, bin, mirror string) *publisher {
	t.Helper()
	updatable.once.Do(func() { updatable.agent, updatable.key, updatable.err = buildUpdatable() })
	if updatable.err != nil {
		t.Fatal(updatable.err)
	}
	runner := harness.Read(t, filepath.Join(bin, "workflow-runner"))
	return &publisher{
		mirror: mirror, key: updatable.key, agent: updatable.agent, runner: runner,
		turn: time.Now().Add(-time.Hour).UTC().Truncate(time.Second),
	}
}

func (p *publisher) program(t *testing.T, version string) []byte {
	t.Helper()
	if len(version) != len(builtVersion) {
		t.Fatalf("%s is not as long as %s", version, builtVersion)
	}
	return bytes.ReplaceAll(p.agent, []byte(builtVersion), []byte(version))
}

func (p *publisher) files(agent []byte) map[string][]byte {
	foreign := []byte("#!/bin/sh\nexit 1\n") // replaces programs for other platforms, which do not run here
	return map[string][]byte{
		release.Program: agent, "workflow-runner": p.runner,
		"workflow-runner-embeddable": foreign, "workflow-runner-embeddable-arm64": foreign, "LICENSE": []byte("a license\n"),
	}
}

func archiveName(t *testing.T, version string) string {
	t.Helper()
	name := must.Get(release.Archive(version, runtime.GOOS, runtime.GOARCH))(t)
	return name
}

// publish publishes a version of the agent, and makes it the newest of the channel.
func (p *publisher) publish(t *testing.T, version string, agent []byte) {
	t.Helper()
	p.turn = p.turn.Add(time.Minute)
	p.publishArchive(t, version, archiveName(t, version), p.files(agent), map[string]string{release.OldName: release.Program})
	p.put(t, release.ChannelFile(release.Stable), release.Channel{Version: version, Published: p.turn}.Text(), true)
}

// publishArchive publishes a version with an archive of files and links.
func (p *publisher) publishArchive(t *testing.T, version, name string, files map[string][]byte, links map[string]string) {
	t.Helper()
	var packed bytes.Buffer
	zip := must.Get(gzip.NewWriterLevel(&packed, gzip.BestSpeed))(t)
	archive := tar.NewWriter(zip)
	add := func(header *tar.Header, data []byte) {
		header.Name = strings.TrimSuffix(name, ".tar.gz") + "/" + header.Name
		header.Size = int64(len(data))
		must.OK(t, archive.WriteHeader(header))
		must.Get(archive.Write(data))(t)
	}
	for file, data := range files {
		add(&tar.Header{Name: file, Mode: 0o755, Typeflag: tar.TypeReg}, data)
	}
	for link, target := range links {
		add(&tar.Header{Name: link, Linkname: target, Typeflag: tar.TypeSymlink}, nil)
	}
	must.OK(t, archive.Close())
	must.OK(t, zip.Close())
	var sums bytes.Buffer
	must.Get((release.Checksums{name: sha256.Sum256(packed.Bytes())}).WriteTo(&sums))(t)
	p.put(t, version+"/"+name, packed.Bytes(), false)
	p.put(t, version+"/"+release.ChecksumsFile, sums.Bytes(), true)
}

// put writes the signature of a file of the mirror, and then the file.
func (p *publisher) put(t *testing.T, name string, data []byte, signed bool) {
	t.Helper()
	path := filepath.Join(p.mirror, name)
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if signed {
		signature := must.Get(signing.Sign(p.key, data))(t)
		harness.Write(t, path+release.SignatureSuffix, signature, 0o644)
	}
	harness.Write(t, path, data, 0o644)
}

const installRoot = "/opt/customer-managed-workflow-agent"

func (p *publisher) install(ctx context.Context, t *testing.T, s *service, root, version string) {
	t.Helper()
	dir := filepath.Join(s.Root, root, "versions", version)
	must.OK(t, os.MkdirAll(dir, 0o755))
	script := "cd " + root + " && ln -s versions/" + version + " current\n"
	for name, data := range p.files(p.program(t, version)) {
		harness.Write(t, filepath.Join(dir, name), data, 0o755)
		script += "ln -s current/" + name + " " + name + "\n"
	}
	s.run(ctx, t, script+"ln -s current/"+release.Program+" "+release.OldName)
}

package update

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
	"workflowagent/internal/retry"
)

// The behaviours of a release's agent, as its program prints them.
const (
	polls   = "polled"
	deaf    = "starting" // starts, but never receives a response
	crashes = "crashed"
	waits   = "waiting"
)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// program returns the agent of a release as a script. The script prints its version, and its state
// as a service.
func program(version, behaviour string) string {
	return fmt.Sprintf("#!/bin/sh\ncase $1 in version) echo %s ;; state) echo %s ;; esac\n", version, behaviour)
}

type entry struct {
	name, content, link string
	kind                byte // type of a tar entry; 0 means a regular file
	mode                int64
}

// wrapName returns the name of the directory in this platform's archive.
func wrapName(version string) string { return strings.TrimSuffix(archiveName(version), ".tar.gz") }

func archiveName(version string) string {
	name, err := release.Archive(version, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		panic(err)
	}
	return name
}

func contents(version, behaviour string) []entry {
	wrap := wrapName(version) + "/"
	entries := []entry{{name: wrap, kind: tar.TypeDir}}
	for _, name := range release.Programs() {
		content := name + " of " + version
		if name == release.Program {
			content = program(version, behaviour)
		}
		entries = append(entries, entry{name: wrap + name, content: content, mode: 0o600})
	}
	return append(entries,
		entry{name: wrap + "LICENSE", content: "license", mode: 0o777},
		entry{name: wrap + "pulumi-workflow-agent.yaml.sample", content: "sample"},
		entry{name: wrap + "man/customer-managed-workflow-agent.1", content: "manual"},
		entry{name: wrap + release.OldName, kind: tar.TypeSymlink, link: release.Program},
		entry{name: wrap + "of-a-later-release", content: "unknown"},
	)
}

func pack(t testing.TB, entries []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.content)), Format: tar.FormatPAX}
		if e.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type files map[string][]byte

func newRelease(t testing.TB, key *ecdsa.PrivateKey, version, behaviour string) files {
	t.Helper()
	return signed(t, key, files{archiveName(version): pack(t, contents(version, behaviour)), "other-file": []byte("other")})
}

func signed(t testing.TB, key *ecdsa.PrivateKey, f files) files {
	t.Helper()
	sums := release.Checksums{}
	for name, data := range f {
		sums[name] = sha256.Sum256(data)
	}
	var text bytes.Buffer
	if _, err := sums.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	f[release.ChecksumsFile] = text.Bytes()
	f[release.ChecksumsFile+release.SignatureSuffix] = sign(t, key, text.Bytes())
	return f
}

func sign(t testing.TB, key *ecdsa.PrivateKey, data []byte) []byte {
	t.Helper()
	signature, err := signing.Sign(key, data)
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// site is a mirror. Tests change its files while child processes request them.
type site struct {
	url    string
	mu     sync.Mutex
	files  files
	asked  map[string]int
	answer func(w http.ResponseWriter, r *http.Request) bool // reports whether it has responded
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{files: files{}, asked: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/mirror/")
		s.mu.Lock()
		s.asked[name]++
		data, ok := s.files[name]
		s.mu.Unlock()
		if s.answer != nil && s.answer(w, r) {
			return
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/mirror"
	return s
}

func (s *site) hits(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

func (s *site) publish(t testing.TB, key *ecdsa.PrivateKey, channel, version string, at time.Time, f files) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, data := range f {
		s.files[version+"/"+name] = data
	}
	text := release.Channel{Version: version, Published: at}.Text()
	s.files[channel+".txt"] = text
	s.files[channel+".txt.sig"] = sign(t, key, text)
}

func (s *site) finder(t testing.TB, keys release.Keys, memory string) *Finder {
	t.Helper()
	f, err := Open(Options{Home: s.url, Keys: keys, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var published = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// house is an installation with a service and a stage.
type house struct {
	key         *ecdsa.PrivateKey
	root, stage string
}

// newHouse returns an installation in the state in which install.sh leaves it. Its service is
// running.
func newHouse(t testing.TB, version string) *house {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &house{key: newKey(t), root: filepath.Join(dir, "root"), stage: filepath.Join(dir, "updates")}
	if err := os.MkdirAll(filepath.Join(h.root, versionsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	h.add(t, version, polls)
	for link, target := range map[string]string{currentLink: versionsDir + "/" + version, release.Program: currentLink + "/" + release.Program} {
		if err := os.Symlink(target, filepath.Join(h.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&unit{root: h.root}).start(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *house) add(t testing.TB, version, behaviour string) {
	t.Helper()
	dir := filepath.Join(h.root, versionsDir, version)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range release.Programs() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(program(version, behaviour)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *house) keys() release.Keys { return release.Keys{&h.key.PublicKey} }

// put stages files and a request without a Finder.
func (h *house) put(t testing.TB, version string, f files) {
	t.Helper()
	if err := os.MkdirAll(h.stage, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range f {
		if err := os.WriteFile(filepath.Join(h.stage, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(request{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.stage, RequestFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (h *house) applier() *Applier {
	log := logrus.New()
	if log.SetOutput(io.Discard); testing.Verbose() {
		log.SetOutput(os.Stderr)
	}
	return newApplier(h.root, h.keys(), log)
}

// little is a timeout for tests that wait until it has passed.
const little = 300 * time.Millisecond

func newApplier(root string, keys release.Keys, log *logrus.Logger) *Applier {
	u := &unit{root: root}
	a := &Applier{
		Installation: Installation{Root: root}, Keys: keys, Service: u, Log: logrus.NewEntry(log),
		interval: time.Millisecond, steady: 3 * time.Millisecond,
	}
	u.applier = a
	return a
}

// works checks that the service runs the current version and that the update left nothing behind.
func (h *house) works(t testing.TB, version string) {
	t.Helper()
	if now, err := h.applier().Current(); err != nil || now != version {
		t.Errorf("current is %s (%v), want %s", now, err, version)
	}
	if got, err := said(filepath.Join(h.root, release.Program), "version"); err != nil || got != version {
		t.Errorf("the program says %q (%v), want %s", got, err, version)
	}
	health, err := (&unit{root: h.root}).Health(context.Background())
	if err != nil || health.Version != version || health.Progress != Polled {
		t.Errorf("the service is %+v (%v), want %s that polls", health, err, version)
	}
	if (Installation{Root: h.root}).Pending() {
		t.Error("a journal is left")
	}
	entries, err := os.ReadDir(h.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, ".") && name != rootLock && name != ".service.json" {
			t.Errorf("%s is left", name)
		}
	}
}

// said returns a program's output.
func said(path, argument string) (string, error) {
	var out []byte
	err := whileBusy(func() (err error) {
		out, err = exec.Command(path, argument).Output()
		return err
	})
	return strings.TrimSpace(string(out)), err
}

// whileBusy repeats the start of a program while its file is still open for writing: in a child process that another
// test is starting, which closes the file at its exec. On a busy machine, that takes seconds.
func whileBusy(start func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := start()
		if !errors.Is(err, syscall.ETXTBSY) || retry.Sleep(ctx, wait) != nil {
			return err
		}
	}
}

// unit is a service manager whose state is in a file, so that the state outlives a test's process.
type unit struct {
	root string
	// applier, if set, gets a timeout of one minute for a version that will become ready, so that
	// no test fails on a busy machine. For other versions, it gets a short timeout.
	applier *Applier
}

type running struct {
	Version string
	PID     int
}

func (u *unit) file() string { return filepath.Join(u.root, ".service.json") }

func (u *unit) read() (r running, err error) {
	text, err := os.ReadFile(u.file())
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// start starts the current program, regardless of its version.
func (u *unit) start() error {
	before, _ := u.read()
	version, err := said(filepath.Join(u.root, release.Program), "version")
	if err != nil {
		return err
	}
	text, err := json.Marshal(running{Version: version, PID: before.PID + 1})
	if err != nil {
		return err
	}
	file, err := filepath.EvalSymlinks(u.file()) // the file can be on another disk
	if err != nil {
		file = u.file()
	}
	next := filepath.Join(filepath.Dir(file), "service.new")
	return errors.Join(os.WriteFile(next, text, 0o644), os.Rename(next, file))
}

func (u *unit) Restart(ctx context.Context) error {
	if err := u.start(); err != nil {
		return err
	}
	_, _ = u.Health(ctx) // sets the applier's timeout
	return nil
}

func (u *unit) Health(context.Context) (Health, error) {
	r, err := u.read()
	if errors.Is(err, os.ErrNotExist) {
		return Health{Progress: NotRunning}, nil
	}
	if err != nil {
		return Health{}, err
	}
	state, err := said(filepath.Join(u.root, versionsDir, r.Version, release.Program), "state")
	if err != nil {
		return Health{}, err
	}
	if u.applier != nil {
		if u.applier.Timeout = time.Minute; state != polls {
			u.applier.Timeout = little
		}
	}
	switch state {
	case crashes:
		return Health{}, errors.New("it has ended with exit code 2")
	default:
		return Health{Version: r.Version, PID: r.PID, Progress: Progress(state)}, nil
	}
}

package update

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/host/release"
)

// TestArchives checks that no archive, even a signed one, can write outside its directory or fill
// the disk.
func TestArchives(t *testing.T) {
	wrap := wrapName("v1.1.0")
	with := func(more ...entry) []entry { return append(contents("v1.1.0", polls), more...) }
	for name, tt := range map[string]struct {
		entries []entry
		want    string // expected part of the error
	}{
		"good":                      {with(), ""},
		"parent":                    {with(entry{name: "../evil", content: "x"}), "is not in the directory"},
		"parent below":              {with(entry{name: wrap + "/../../evil", content: "x"}), "is not in the directory"},
		"absolute":                  {with(entry{name: "/tmp/evil", content: "x"}), "is not in the directory"},
		"another directory":         {with(entry{name: "other/LICENSE", content: "x"}), "is not in the directory"},
		"name that begins the same": {with(entry{name: wrap + "x/LICENSE", content: "x"}), "is not in the directory"},
		"dots":                      {with(entry{name: wrap + "/./man/a.1", content: "x"}), "is not in the directory"},
		"hard link":                 {with(entry{name: wrap + "/hard", kind: tar.TypeLink, link: "/etc/shadow"}), "special file"},
		"device":                    {with(entry{name: wrap + "/null", kind: tar.TypeChar}), "special file"},
		"block device":              {with(entry{name: wrap + "/disk", kind: tar.TypeBlock}), "special file"},
		"pipe":                      {with(entry{name: wrap + "/pipe", kind: tar.TypeFifo}), "special file"},
		"known name as a link":      {append([]entry{{name: wrap + "/workflow-runner", kind: tar.TypeSymlink, link: "/bin/sh"}}, with()...), "is a link and should be a file"},
		"directory as a link":       {append([]entry{{name: wrap + "/man", kind: tar.TypeSymlink, link: "/tmp"}}, with()...), ""}, // not created
		"unknown link":              {with(entry{name: wrap + "/alias", kind: tar.TypeSymlink, link: "../../../etc"}), ""},        // not created
		"old name elsewhere":        {append([]entry{{name: wrap + "/" + release.OldName, kind: tar.TypeSymlink, link: "/bin/sh"}}, with()...), ""},
		"old name as a file":        {with(entry{name: wrap + "/" + release.OldName, content: "x"}), ""},
		"twice":                     {with(entry{name: wrap + "/workflow-runner", content: "x"}), "file exists"},
		"missing program":           {with()[:3], "is missing or empty"},
		"empty program":             {[]entry{{name: wrap + "/" + release.Program}}, "is missing or empty"},
		"empty":                     {nil, "is missing or empty"},
		"too many":                  {many(wrap), "more than any release"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			into, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer into.Close()
			err = unpack(bytes.NewReader(pack(t, tt.entries)), wrap, into)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("unpack: %v, want %q", err, tt.want)
			}
			entries, readErr := os.ReadDir(dir)
			if readErr != nil {
				t.Fatal(readErr)
			}
			for _, e := range entries {
				if expected(e.Name()) == 0 && e.Name() != "man" && e.Name() != release.OldName {
					t.Errorf("%s was unpacked", e.Name())
				}
				if e.Type()&os.ModeSymlink != 0 && e.Name() != release.OldName {
					t.Errorf("%s is a link", e.Name())
				}
			}
			if target, _ := os.Readlink(filepath.Join(dir, release.OldName)); err == nil && target != release.Program {
				t.Errorf("the old name is a link to %q", target)
			}
		})
	}
}

func many(wrap string) []entry {
	entries := []entry{}
	for range maxEntries + 2 {
		entries = append(entries, entry{name: wrap + "/unknown", content: "x"})
	}
	return entries
}

// TestBombs checks that unpacking stops if an archive expands beyond the limits.
func TestBombs(t *testing.T) {
	defer func(unpacked, file int64) { maxUnpacked, maxFile = unpacked, file }(maxUnpacked, maxFile)
	maxUnpacked, maxFile = 8<<20, 2<<20
	wrap := wrapName("v1.1.0")
	for name, tt := range map[string]struct {
		file string
		size int64
		want string
	}{
		"huge known file":    {"workflow-runner", maxFile + 1, "more than any file"},
		"huge unknown file":  {"unknown", 32 << 20, "more than any release"},
		"short of its bytes": {"workflow-runner", 1000, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			into, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer into.Close()
			// 16 MiB of zeros, compressed to a few KB.
			r, w := io.Pipe()
			go func() {
				zipped, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
				archive := tar.NewWriter(zipped)
				_ = archive.WriteHeader(&tar.Header{Name: wrap + "/" + tt.file, Typeflag: tar.TypeReg, Size: tt.size, Mode: 0o644})
				if tt.size > 1000 {
					_, _ = io.Copy(archive, io.LimitReader(zeros{}, 16<<20))
				}
				_ = w.CloseWithError(errors.Join(archive.Flush(), zipped.Close(), io.ErrUnexpectedEOF))
			}()
			defer r.Close()
			if err := unpack(r, wrap, into); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("unpack: %v, want %q", err, tt.want)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestHostileStage checks that an applier follows no link, never blocks, and installs no file that
// was swapped in.
func TestHostileStage(t *testing.T) {
	for name, attack := range map[string]func(t *testing.T, h *house){
		"archive is a link": func(t *testing.T, h *house) {
			path := filepath.Join(h.stage, archiveName("v1.1.0"))
			move(t, path, path+".real")
			link(t, path+".real", path)
		},
		"checksums are a link": func(t *testing.T, h *house) {
			path := filepath.Join(h.stage, release.ChecksumsFile)
			move(t, path, path+".real")
			link(t, release.ChecksumsFile+".real", path)
		},
		"request is a link": func(t *testing.T, h *house) {
			path := filepath.Join(h.stage, RequestFile)
			move(t, path, path+".real")
			link(t, RequestFile+".real", path)
		},
		"archive is a pipe":    func(t *testing.T, h *house) { pipe(t, filepath.Join(h.stage, archiveName("v1.1.0"))) },
		"checksums are a pipe": func(t *testing.T, h *house) { pipe(t, filepath.Join(h.stage, release.ChecksumsFile)) },
		"request is a pipe":    func(t *testing.T, h *house) { pipe(t, filepath.Join(h.stage, RequestFile)) },
		"signature is a directory": func(t *testing.T, h *house) {
			path := filepath.Join(h.stage, release.ChecksumsFile+release.SignatureSuffix)
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
				t.Fatal(err)
			}
		},
		"huge archive":   func(t *testing.T, h *house) { grow(t, filepath.Join(h.stage, archiveName("v1.1.0")), maxArchive+1) },
		"huge checksums": func(t *testing.T, h *house) { grow(t, filepath.Join(h.stage, release.ChecksumsFile), 1<<40) },
		"huge request":   func(t *testing.T, h *house) { grow(t, filepath.Join(h.stage, RequestFile), 1<<40) },
		"stage is a link": func(t *testing.T, h *house) {
			move(t, h.stage, h.stage+".real")
			link(t, h.stage+".real", h.stage)
		},
		"stage is a file": func(t *testing.T, h *house) {
			if err := errors.Join(os.RemoveAll(h.stage), os.WriteFile(h.stage, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "v1.0.0")
			h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
			attack(t, h)
			began := time.Now()
			if result, err := h.applier().Apply(t.Context(), h.stage); err == nil || result.Outcome != Nothing {
				t.Errorf("Apply: %+v, %v", result, err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			h.works(t, "v1.0.0")
			if err := os.RemoveAll(h.stage); err != nil {
				t.Fatal(err)
			}
			h.updates(t, "v1.1.0")
		})
	}
}

// TestExchanged checks that a file that was exchanged after the copy is not installed.
func TestExchanged(t *testing.T) {
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	evil := signed(t, newKey(t), files{archiveName("v1.1.0"): pack(t, contents("v1.1.0", crashes))})
	defer func(before func(string)) { step = before }(step)
	exchanged := false
	step = func(name string) {
		if name == "copied" {
			h.put(t, "v1.1.0", evil)
			exchanged = true
		}
	}
	result, err := h.applier().Apply(t.Context(), h.stage)
	if err != nil || result.Outcome != Updated || !exchanged {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")
}

// TestHostileRoot checks that an applier does not write through links that were planted in the
// root.
func TestHostileRoot(t *testing.T) {
	h := newHouse(t, "v1.0.0")
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.MkdirAll(filepath.Join(victim, "kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{incomingDir, versionsDir + "/v1.1.0", next(currentLink), next(JournalFile), next(provenLink)} {
		link(t, victim, filepath.Join(h.root, name))
	}
	h.updates(t, "v1.1.0")
	if entries, err := os.ReadDir(victim); err != nil || len(entries) != 1 {
		t.Errorf("the directory behind the links holds %v, %v", entries, err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func pipe(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// grow extends a file with a hole, without using disk space.
func grow(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

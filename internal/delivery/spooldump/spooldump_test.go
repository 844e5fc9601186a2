package spooldump_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/delivery"
	"workflowagent/internal/delivery/spooldump"
)

func read(r io.Reader) (map[string]string, error) {
	files := map[string]string{}
	err := spooldump.Read(r, func(name string, size int64, content io.Reader) error {
		data, err := io.ReadAll(content)
		files[name] = string(data)
		if err == nil && int64(len(data)) != size {
			return errors.New("wrong size")
		}
		return err
	})
	return files, err
}

// spool returns a directory with a spool, and the content of its files.
func spool(t testing.TB) (string, map[string]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "spool")
	s, err := delivery.Open(dir, delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		stream, err := s.Step(step)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 300<<10*step)
		for i := range text {
			text[i] = "abcdefghijklmnopqrstuvwxyz \n"[rand.N(28)]
		}
		if _, err := stream.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if delivery.IsFileName(e.Name()) {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			files[e.Name()] = string(data)
		}
	}
	if len(files) < 2 {
		t.Fatalf("the spool has only %d files", len(files))
	}
	return dir, files
}

func dumped(t testing.TB, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := spooldump.Write(&out, dir); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDump(t *testing.T) {
	dir, want := spool(t)
	for _, name := range []string{"other", "step-0001-0000000000000000.log.new"} { // not needed to continue the spool
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "step-0009.state")); err != nil {
		t.Fatal(err)
	}
	text := dumped(t, dir)
	for _, in := range []string{string(text), "a message\n" + strings.ReplaceAll(string(text), "\n", "\r\nanother\n"), strings.Repeat("x", 1<<20) + "\n" + string(text)} {
		got, err := read(strings.NewReader(in))
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("got %v, %v", slices.Sorted(maps.Keys(got)), err)
		}
	}
	if got, err := read(bytes.NewReader(dumped(t, filepath.Join(dir, "missing")))); err != nil || len(got) != 0 {
		t.Errorf("a missing spool: %v, %v", got, err)
	}
	var none bytes.Buffer
	if err := spooldump.WriteNone(&none); err != nil {
		t.Fatal(err)
	}
	if got, err := read(&none); err != nil || len(got) != 0 {
		t.Errorf("no spool: %v, %v", got, err)
	}
}

// TestDamage removes and damages each line of a dump in turn.
func TestDamage(t *testing.T) {
	dir, want := spool(t)
	lines := slices.Collect(bytes.Lines(dumped(t, dir)))
	for i, line := range lines {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(line), "workflow-spool/1 "), " ")
		damaged := bytes.Clone(line)
		damaged[len(damaged)/2] ^= 1
		for how, in := range map[string][][]byte{
			"without":      slices.Concat(lines[:i], lines[i+1:]),
			"damaged":      slices.Concat(lines[:i], [][]byte{damaged}, lines[i+1:]),
			"cut before":   lines[:i],
			"begins after": lines[i+1:],
		} {
			got, err := read(bytes.NewReader(slices.Concat(in...)))
			if !errors.Is(err, spooldump.ErrIncomplete) {
				t.Errorf("%s line %d: %v", how, i, err)
			}
			for file, content := range want {
				switch {
				case how == "cut before" || how == "begins after" || file == name:
					if !strings.HasPrefix(content, got[file]) {
						t.Errorf("%s line %d: wrong content of %s", how, i, file)
					}
				case got[file] != content:
					t.Errorf("%s line %d: %s is damaged too", how, i, file)
				}
			}
		}
	}
}

func TestSparseFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "step-0001-0000000000000000.log"))
	if err == nil {
		err = errors.Join(f.Truncate(1<<40), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := spooldump.Write(&out, dir); err == nil || out.Len() > 1<<20 {
		t.Errorf("a huge file: %v, %d bytes", err, out.Len())
	}
}

func TestAddFails(t *testing.T) {
	dir, _ := spool(t)
	full := errors.New("full")
	err := spooldump.Read(bytes.NewReader(dumped(t, dir)), func(string, int64, io.Reader) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	dir, _ := spool(f)
	for line := range bytes.Lines(dumped(f, dir)) {
		f.Add(line)
	}
	f.Add([]byte("workflow-spool/1 step-0001.state 0 0 00000000 -\nworkflow-spool/1 end 1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		total := 0
		err := spooldump.Read(bytes.NewReader(in), func(name string, size int64, content io.Reader) error {
			if !delivery.IsFileName(name) || size < 0 {
				t.Errorf("file %q with size %d", name, size)
			}
			data, err := io.ReadAll(content)
			total += len(data)
			if err == nil && int64(len(data)) != size {
				t.Errorf("%s has %d of %d bytes", name, len(data), size)
			}
			return err
		})
		if err != nil && !errors.Is(err, spooldump.ErrIncomplete) {
			t.Errorf("Read: %v", err)
		}
		if total > 64<<10*len(in) {
			t.Errorf("%d bytes from %d", total, len(in))
		}
	})
}

package spooltext

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
)

const (
	first  = "step-0001-0000000000000000.log"
	second = "step-0002-0000000000000000.log"
	state  = "step-0001.state"
)

func printed(t testing.TB, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := Write(&out, dir); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func collect(r io.Reader) (map[string]string, error) {
	got := map[string]string{}
	err := Read(r, func(name string, size int64, content io.Reader) error {
		data, err := io.ReadAll(content)
		got[name] = string(data)
		return err
	})
	return got, err
}

func samples() map[string]string {
	random := rand.New(rand.NewPCG(1, 2))
	long := make([]byte, 5*lineBytes+17)
	for i := range long {
		long[i] = byte(random.Uint32())
	}
	return map[string]string{first: string(long), second: "x\n\x00\r\xff", state: ""}
}

func TestRoundTrip(t *testing.T) {
	want := samples()
	files := maps.Clone(want)
	files["other"] = "is not part of a spool"
	text := printed(t, files)
	got, err := collect(bytes.NewReader(text))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("read %d files, %v, want %d", len(got), err, len(want))
	}
	for line := range bytes.Lines(text) {
		if len(line) > 16<<10 {
			t.Errorf("a line has %d bytes: an engine splits it", len(line))
		}
	}
	got, err = collect(bytes.NewReader(bytes.TrimSuffix(text, []byte("\n")))) // an engine can drop the last newline
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("without the last newline: read %d files, %v", len(got), err)
	}
}

func TestEmpty(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, filepath.Join(t.TempDir(), "missing")); err != nil || out.Len() > 0 {
		t.Errorf("writing a missing spool: %q, %v", out.String(), err)
	}
	if got, err := collect(&out); err != nil || len(got) > 0 {
		t.Errorf("reading no output: %v, %v", got, err)
	}
	if got, err := collect(bytes.NewReader(printed(t, nil))); err != nil || len(got) > 0 {
		t.Errorf("reading an empty spool: %v, %v", got, err)
	}
}

// TestDamage removes or changes each line. Read must notice it, keep all other files, and return only
// bytes of the original at their place.
func TestDamage(t *testing.T) {
	want := samples()
	lines := slices.Collect(bytes.Lines(printed(t, want)))
	for i := range lines {
		for what, change := range map[string]func([]byte) []byte{
			"removed": func([]byte) []byte { return nil },
			"cut":     func(l []byte) []byte { return append(slices.Clone(l[:len(l)/2]), '\n') },
			"changed": func(l []byte) []byte {
				l = slices.Clone(l)
				l[len(l)/2] ^= 1
				return l
			},
		} {
			text := bytes.Join(slices.Concat(lines[:i], [][]byte{change(lines[i])}, lines[i+1:]), nil)
			got, err := collect(bytes.NewReader(text))
			if !errors.Is(err, ErrIncomplete) {
				t.Errorf("line %d %s: %v, want %v", i, what, err, ErrIncomplete)
			}
			intact := 0
			for name, content := range got {
				if content == want[name] {
					intact++
				} else if original, known := want[name]; known && !strings.HasPrefix(original, content) {
					t.Errorf("line %d %s: %s has bytes that the original does not have there", i, what, name)
				}
			}
			if intact < len(want)-1 {
				t.Errorf("line %d %s: only %d files are intact", i, what, intact)
			}
		}
	}
}

func TestAddFails(t *testing.T) {
	full := errors.New("disk full")
	err := Read(bytes.NewReader(printed(t, samples())), func(string, int64, io.Reader) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("Read: %v, want %v", err, full)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(printed(f, samples()))
	f.Add([]byte("spool 1 00000000\nfile a 3 00000000\ndata 0 AAAA 00000000\ndone 1 00000000\n"))
	f.Add([]byte("spool 1\nfile a 99999999999999999999\ndata\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		total := 0
		_ = Read(bytes.NewReader(text), func(name string, size int64, content io.Reader) error {
			data, err := io.ReadAll(content)
			if int64(len(data)) > size || err != nil {
				t.Errorf("%d bytes of %d, %v", len(data), size, err)
			}
			total += len(data)
			return nil
		})
		if total > len(text) {
			t.Errorf("%d bytes from %d", total, len(text))
		}
	})
}

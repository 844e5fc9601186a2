package policypack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// archive returns a compressed tar file with the entries that write adds.
func archive(t *testing.T, write func(*tar.Writer)) []byte {
	t.Helper()
	var buffer bytes.Buffer
	compressed := must.Get(gzip.NewWriterLevel(&buffer, gzip.BestSpeed))(t)
	entries := tar.NewWriter(compressed)
	write(entries)
	must.OK(t, entries.Close())
	must.OK(t, compressed.Close())
	return buffer.Bytes()
}

func file(t *testing.T, entries *tar.Writer, name, content string, mode int64) {
	t.Helper()
	entry(t, entries, tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: mode})
	_ = must.Get(io.WriteString(entries, content))(t)
}

func entry(t *testing.T, entries *tar.Writer, header tar.Header) {
	t.Helper()
	must.OK(t, entries.WriteHeader(&header))
}

func unpack(t *testing.T, data []byte) (dir string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "pack")
	return dir, Unpack(t.Context(), bytes.NewReader(data), sha256.Sum256(data), dir)
}

// raw returns an entry that the tar package does not write: the header, and data of whole blocks.
func raw(kind byte, name string, size int64, data string) []byte {
	block := make([]byte, 512, 1024+len(data))
	copy(block, name)
	copy(block[100:], "0000644\x000000000\x000000000\x00")
	copy(block[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", size))
	block[156] = kind
	copy(block[257:], "ustar\x0000")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(block, data...)
}

// compressed compresses the bytes of a tar file.
func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_ = must.Get(w.Write(data))(t)
	must.OK(t, w.Close())
	return buffer.Bytes()
}

// random returns a file that cannot be compressed, in an archive.
func random(t *testing.T, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	return archive(t, func(w *tar.Writer) { file(t, w, "package/random", string(content), 0o644) })
}

func TestUnpack(t *testing.T) {
	dir, err := unpack(t, archive(t, func(w *tar.Writer) {
		entry(t, w, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "of git archive"}})
		entry(t, w, tar.Header{Typeflag: tar.TypeDir, Name: "package/", Mode: 0o700})
		file(t, w, "package/PulumiPolicy.yaml", "runtime: executable\n", 0o600)
		file(t, w, "package/policy", "program", 0o4711)
		file(t, w, "package/a/b/c", "no separate directory", 0)
		file(t, w, "other/file", "ignored, as by the CLI", 0o644)
		entry(t, w, tar.Header{Typeflag: tar.TypeSymlink, Name: "other/link", Linkname: "/etc/passwd"})
	}))
	must.OK(t, err)
	got := map[string]string{}
	must.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info := must.Get(d.Info())(t)
			name := must.Get(filepath.Rel(dir, path))(t)
			got[name] = info.Mode().String()
		}
		return err
	}))
	want := map[string]string{"PulumiPolicy.yaml": "-rw-r--r--", "policy": "-rwxr-xr-x", "a/b/c": "-rw-r--r--"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if data := must.Get(os.ReadFile(filepath.Join(dir, "policy")))(t); string(data) != "program" {
		t.Errorf("%q", data)
	}
}

// TestUnpackRefusesAttacks checks that no such archive leaves anything behind, in the directory or outside of it.
func TestUnpackRefusesAttacks(t *testing.T) {
	long := strings.Repeat("d/", maxDepth+1)
	for name, tt := range map[string]struct {
		write func(*tar.Writer)
		want  string
	}{
		"parent":            {func(w *tar.Writer) { file(t, w, "package/../../escaped", "x", 0o644) }, `the path "package/../../escaped"`},
		"parent at the end": {func(w *tar.Writer) { file(t, w, "package/a/..", "x", 0o644) }, "the path"},
		"absolute":          {func(w *tar.Writer) { file(t, w, "/package/escaped", "x", 0o644) }, "the path"},
		"symbolic link": {func(w *tar.Writer) {
			entry(t, w, tar.Header{Typeflag: tar.TypeSymlink, Name: "package/link", Linkname: ".."})
			file(t, w, "package/link/escaped", "x", 0o644)
		}, `"package/link" is neither a file nor a directory`},
		"hard link": {func(w *tar.Writer) {
			entry(t, w, tar.Header{Typeflag: tar.TypeLink, Name: "package/link", Linkname: "/etc/passwd"})
		}, "neither a file nor a directory"},
		"device": {func(w *tar.Writer) {
			entry(t, w, tar.Header{Typeflag: tar.TypeBlock, Name: "package/sda", Devmajor: 8, Mode: 0o666})
		}, "neither a file nor a directory"},
		"pipe": {func(w *tar.Writer) {
			entry(t, w, tar.Header{Typeflag: tar.TypeFifo, Name: "package/pipe", Mode: 0o666})
		}, "neither a file nor a directory"},
		"twice": {func(w *tar.Writer) {
			file(t, w, "package/policy", "checked", 0o755)
			file(t, w, "package/./policy", "run", 0o755)
		}, "file exists"},
		"file as directory": {func(w *tar.Writer) {
			file(t, w, "package/a", "x", 0o644)
			file(t, w, "package/a/b", "x", 0o644)
		}, "exists"},
		"instead of the directory": {func(w *tar.Writer) { file(t, w, "package", "x", 0o644) }, "exists"},
		"depth":                    {func(w *tar.Writer) { file(t, w, "package/"+long+"f", "x", 0o644) }, "more than 32 directories"},
		"empty":                    {func(w *tar.Writer) { file(t, w, "packages/policy", "x", 0o755) }, "no file in the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := unpack(t, archive(t, tt.write))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if left := must.Get(os.ReadDir(filepath.Dir(dir)))(t); len(left) > 0 {
				t.Errorf("the archive left %v", left)
			}
		})
	}
}

// small are limits that tests reach soon.
var small = limits{archive: 64 << 10, unpacked: 1 << 20, files: 100}

func TestUnpackRefusesBombs(t *testing.T) {
	zeros := archive(t, func(w *tar.Writer) { file(t, w, "package/zeros", strings.Repeat("\x00", 2<<20), 0o644) })
	outside := archive(t, func(w *tar.Writer) { file(t, w, "outside", strings.Repeat("\x00", 2<<20), 0o644) })
	many := func(name string) []byte {
		return archive(t, func(w *tar.Writer) {
			for i := range small.files {
				file(t, w, fmt.Sprintf(name, i), "", 0o644)
			}
		})
	}
	// GNU's form of a file of 1 TiB without data: the real size is a record of the extended header.
	record := "34 GNU.sparse.name=package/sparse\n22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n37 GNU.sparse.realsize=1099511627776\n"
	sparse := append(raw('x', "extended", int64(len(record)), record+strings.Repeat("\x00", 512-len(record))),
		raw('0', "package/sparse", 512, "0\n"+strings.Repeat("\x00", 510))...)
	// Each member of a gzip file is small, but there are many.
	members := bytes.Repeat(compressed(t, make([]byte, 64<<10)), 100)
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"zeros":               {zeros, "the unpacked archive is larger than 1048576 bytes"},
		"outside":             {outside, "the unpacked archive is larger than 1048576 bytes"},
		"promised size":       {compressed(t, raw('0', "package/a", 8<<30-1, "")), "the unpacked archive is larger than 1048576 bytes"},
		"sparse":              {compressed(t, append(sparse, make([]byte, 1024)...)), "the unpacked archive is larger than 1048576 bytes"},
		"members":             {append(compressed(t, raw('0', "package/a", 7<<20, "")), members...), "the unpacked archive is larger than 1048576 bytes"},
		"files":               {many("package/d/%d"), "more than 100 files and directories"},
		"directories":         {many("package/%d/d/f"), "more than 100 files and directories"},
		"size":                {append(archive(t, func(*tar.Writer) {}), make([]byte, 65<<10)...), "the archive is larger than 65536 bytes"},
		"size of the archive": {random(t, 65<<10), "the archive is larger than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "pack")
			err := small.unpack(t.Context(), bytes.NewReader(tt.data), sha256.Sum256(tt.data), dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if left := must.Get(os.ReadDir(filepath.Dir(dir)))(t); len(left) > 0 {
				t.Errorf("the archive left %v", left)
			}
		})
	}
	if len(members) > int(small.archive) {
		t.Errorf("the members have %d bytes", len(members))
	}
}

// TestUnpackRefusesManyFiles tests an archive of 100 000 files, with a lower limit than the usual one to take less time.
func TestUnpackRefusesManyFiles(t *testing.T) {
	const files = 100_000
	data := archive(t, func(w *tar.Writer) {
		for i := range files {
			entry(t, w, tar.Header{Typeflag: tar.TypeReg, Name: "package/" + strconv.Itoa(i), Mode: 0o644})
		}
	})
	few := usual
	if few.files = 100; usual.files >= files {
		t.Errorf("an archive may have %d files", usual.files)
	}
	dir := filepath.Join(t.TempDir(), "pack")
	err := few.unpack(t.Context(), bytes.NewReader(data), sha256.Sum256(data), dir)
	if err == nil || !strings.Contains(err.Error(), "more than 100 files and directories") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pack remained: %v", err)
	}
}

func TestUnpackChecksTheSum(t *testing.T) {
	good := archive(t, func(w *tar.Writer) { file(t, w, "package/policy", "x", 0o755) })
	other := archive(t, func(w *tar.Writer) { file(t, w, "package/policy", "y", 0o755) })
	for name, data := range map[string][]byte{
		"another pack":    other,
		"more at the end": append(bytes.Clone(good), 0),
		"cut off":         good[:len(good)-4],
		"no archive":      []byte("<html>not found</html>"),
		"empty":           nil,
	} {
		dir := filepath.Join(t.TempDir(), "pack")
		err := Unpack(t.Context(), bytes.NewReader(data), sha256.Sum256(good), dir)
		if err == nil || !strings.Contains(err.Error(), "does not have the SHA-256 sum of the published pack") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the pack remained: %v", name, err)
		}
	}
}

func TestUnpackStops(t *testing.T) {
	data := archive(t, func(w *tar.Writer) { file(t, w, "package/policy", "x", 0o755) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Unpack(ctx, bytes.NewReader(data), sha256.Sum256(data), filepath.Join(t.TempDir(), "pack")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestUnpackKeepsOthers checks that a pack is never unpacked over existing files, which an error would delete.
func TestUnpackKeepsOthers(t *testing.T) {
	data := archive(t, func(w *tar.Writer) { file(t, w, "package/policy", "x", 0o755) })
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	if err := Unpack(t.Context(), bytes.NewReader(data), sha256.Sum256(data), dir); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "other")); err != nil {
		t.Error(err)
	}
}

package docker

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestExtractStaysInside extracts what a hostile job could have left as its spool.
func TestExtractStaysInside(t *testing.T) {
	base := t.TempDir()
	dst := filepath.Join(base, "dst")
	outside := filepath.Join(base, "outside")
	if err := os.MkdirAll(dst, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, filepath.Join(dst, "way-out")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	archive := func(headers ...tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = 1
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	err = extract(archive(
		tar.Header{Typeflag: tar.TypeDir, Name: "spool/"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool/../../outside"},
		tar.Header{Typeflag: tar.TypeReg, Name: "/spool/../outside"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "spool/link", Linkname: base},
		tar.Header{Typeflag: tar.TypeLink, Name: "spool/hard", Linkname: "/etc/passwd"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "spool/pipe"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool/good", Mode: 0o4777},
	), root)
	if err != nil {
		t.Fatal(err)
	}
	if err := extract(archive(tar.Header{Typeflag: tar.TypeReg, Name: "spool/way-out/outside"}), root); err == nil {
		t.Error("a file was extracted through a link that leads out")
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a file was extracted outside")
	}
	entries, err := os.ReadDir(dst)
	if err != nil || len(entries) != 2 {
		t.Errorf("extracted %v, %v", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dst, "good")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the good file has mode %v, %v", info.Mode(), err)
	}
}

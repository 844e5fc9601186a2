package update

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// FuzzUnpack unpacks archives that any holder of a release key could have signed.
func FuzzUnpack(f *testing.F) {
	seed := func(headers ...tar.Header) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = 1
			}
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("x")); err != nil {
					f.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	seed(tar.Header{Typeflag: tar.TypeDir, Name: "w/"}, tar.Header{Typeflag: tar.TypeReg, Name: "w/LICENSE", Mode: 0o6755})
	seed(tar.Header{Typeflag: tar.TypeSymlink, Name: "w/man", Linkname: ".."}, tar.Header{Typeflag: tar.TypeReg, Name: "w/man/x.1"})
	seed(tar.Header{Typeflag: tar.TypeReg, Name: "w/../outside"}, tar.Header{Typeflag: tar.TypeLink, Name: "w/LICENSE", Linkname: "/etc/passwd"})
	f.Fuzz(func(t *testing.T, archive []byte) {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, err := w.Write(archive)
		if err != nil || w.Close() != nil {
			t.Fatal("packing")
		}
		dir := t.TempDir()
		into := filepath.Join(dir, "into")
		if err := os.Mkdir(into, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(into)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()             // only a directory handle
		_ = unpack(&zipped, "w", root) // most archives are invalid
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Fatalf("the archive leads out of its directory: %v, %v", entries, err)
		}
		err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil && entry.Type().IsRegular() && (expected(name) == 0 || info.Mode() != expected(name)) {
				// A truncated file still has the mode that the umask permits.
				if info.Mode()&^0o777 != 0 || expected(name) == 0 {
					t.Errorf("%s has mode %v", name, info.Mode())
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

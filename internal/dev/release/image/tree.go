package image

import (
	"archive/tar"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

type entry struct {
	path  string // absolute
	text  []byte
	link  string // target of a symbolic link
	mode  int64  // 0: 0644
	owner int    // user and group
	isDir bool
}

// writeTree writes files and their parent directories as a tar archive, in name order and with the
// same time.
func writeTree(out io.Writer, files []entry, at time.Time) error {
	all := map[string]entry{}
	for _, e := range files {
		all[e.path] = e
		for dir := path.Dir(e.path); dir != "/"; dir = path.Dir(dir) {
			if _, known := all[dir]; !known {
				all[dir] = entry{path: dir, mode: 0o755, isDir: true}
			}
		}
	}
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: strings.TrimPrefix(e.path, "/"), Mode: e.mode, Size: int64(len(e.text)),
			Uid: e.owner, Gid: e.owner, ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatPAX,
		}
		switch {
		case e.isDir:
			header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		case e.link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.link, 0o777
		case e.mode == 0:
			header.Mode = 0o644
		}
		if err := w.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := w.Write(e.text); err != nil {
			return err
		}
	}
	return w.Close()
}

// certificates returns the certificate authorities that Mozilla trusts, in PEM form. They come from
// a module of the Go project, so that go.mod pins them and builds are reproducible. Authorities
// that Mozilla trusts with restrictions are omitted, because PEM cannot express the restrictions.
func certificates() ([]byte, error) {
	var text []byte
	n := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		n++
	}
	if n == 0 {
		return nil, errors.New("reading the certificate authorities: the module contains none")
	}
	return append(fmt.Appendf(nil, "# %d certificate authorities, golang.org/x/crypto/x509roots/fallback\n", n), text...), nil
}

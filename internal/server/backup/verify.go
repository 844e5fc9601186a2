package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"

	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
)

// Report is what the verification of a backup has found.
type Report struct {
	Path     string
	Manifest Manifest
	// keys are the wrapped keys of secrets.
	keys keyring.Stored
}

// Verify reads a whole backup, or the newest one in a directory, and compares everything with its hash. If it returns an
// error, the backup must not be restored. If passphrase is not "", it must open the sealed master key, and the key must
// open the secrets.
func Verify(ctx context.Context, dir, passphrase string) (Report, error) {
	b, err := openNewest(dir)
	if err != nil {
		return Report{}, err
	}
	defer b.close()
	return b.verify(ctx, passphrase)
}

// openNewest opens a backup, or the newest one in a directory.
func openNewest(dir string) (*stored, error) {
	path, err := Find(dir)
	if err != nil {
		return nil, err
	}
	return open(path)
}

func (b *stored) verify(ctx context.Context, passphrase string) (Report, error) {
	report := Report{Path: b.path, Manifest: b.manifest, keys: keyring.Stored{}}
	if err := b.checkNames(); err != nil {
		return report, err
	}
	schema, err := store.TablesOf(ctx, b.manifest.Schema)
	if err != nil {
		return report, explain(err, b.manifest)
	}
	err = b.eachTable(schema, func(t Table, rel store.Relation) error {
		return b.readTable(t, rel, func(columns []store.Column, rows iter.Seq2[[]any, error]) error {
			for values, err := range rows {
				if err := errors.Join(err, ctx.Err()); err != nil {
					return err
				}
				if t.Name == installationTable {
					report.note(columns, values)
				}
			}
			return nil
		})
	})
	if err != nil {
		return report, err
	}
	if err := b.verifyBlobs(ctx); err != nil {
		return report, err
	}
	if err := b.verifyKey(); err != nil || passphrase == "" {
		return report, err
	}
	_, err = b.sealedKey(report.keys, passphrase)
	return report, err
}

const installationTable = "installation"

// note keeps the wrapped keys from the table of the installation's values.
func (r Report) note(columns []store.Column, values []any) {
	name := slices.IndexFunc(columns, func(c store.Column) bool { return c.Name == "name" })
	value := slices.IndexFunc(columns, func(c store.Column) bool { return c.Name == "value" })
	if name < 0 || value < 0 {
		return
	}
	text, isText := values[name].(string)
	if keys, ok := values[value].([]byte); ok && isText {
		r.keys.Keep(text, keys)
	}
}

// checkNames checks that the backup contains exactly the files that its manifest names, except the blobs.
func (b *stored) checkNames() error {
	want := []string{blobsDir, blobsName, manifestName, tablesDir}
	if b.manifest.Key != nil {
		want = append(want, keyName)
	}
	if err := b.checkDir(".", want); err != nil {
		return err
	}
	for _, dir := range []string{tablesDir, blobsDir} {
		info, err := b.root.Lstat(dir)
		if err == nil {
			err = b.check(dir, info, true)
		}
		if err != nil {
			return damaged(dir, err)
		}
	}
	var tables []string
	for _, t := range b.manifest.Tables {
		tables = append(tables, t.Name+tableSuffix)
	}
	return b.checkDir(tablesDir, tables)
}

func (b *stored) checkDir(dir string, want []string) error {
	entries, err := fs.ReadDir(b.root.FS(), dir)
	if err != nil {
		return damaged(dir, err)
	}
	slices.Sort(want)
	for _, e := range entries {
		if _, ok := slices.BinarySearch(want, e.Name()); !ok {
			return damaged(filepath.Join(dir, e.Name()), errors.New("its manifest does not name this file: remove it, and find out who has put it there"))
		}
	}
	if len(entries) < len(want) {
		return damaged(dir, errors.New("files are missing"))
	}
	return nil
}

// verifyBlobs checks all blobs, and that no other files exist.
func (b *stored) verifyBlobs(ctx context.Context) error {
	walk, stop := b.walkBlobs()
	defer stop()
	err := b.eachBlob(func(entry Blob) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, err := walk()
		switch {
		case err != nil:
			return err
		case name == "":
			return damaged(blobName(entry.Key), fs.ErrNotExist)
		case name != blobName(entry.Key):
			return damaged(name, fmt.Errorf("the list of blobs continues with %s: a file is missing, or not listed", blobName(entry.Key)))
		}
		h, err := b.openBlob(entry)
		if err != nil {
			return err
		}
		defer h.f.Close()
		if err := h.complete(); err != nil {
			return damaged(name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch name, err := walk(); {
	case err != nil:
		return err
	case name != "":
		return damaged(name, errors.New("the list of blobs does not contain this file"))
	}
	return nil
}

// verifyKey checks the file of the sealed key.
func (b *stored) verifyKey() error {
	if b.manifest.Key == nil {
		return nil
	}
	h, err := b.openPart(keyName, *b.manifest.Key)
	if err != nil {
		return err
	}
	defer h.f.Close()
	if _, err := io.CopyN(io.Discard, h, maxKey); err != nil && !errors.Is(err, io.EOF) {
		return damaged(keyName, err)
	}
	if err := h.complete(); err != nil {
		return damaged(keyName, err)
	}
	return nil
}

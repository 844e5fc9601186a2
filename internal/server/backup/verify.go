package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
// error, the backup must not be restored.
func Verify(ctx context.Context, dir string) (Report, error) {
	b, err := openNewest(dir)
	if err != nil {
		return Report{}, err
	}
	defer b.close()
	return b.verify(ctx)
}

// openNewest opens a backup, or the newest one in a directory.
func openNewest(dir string) (*stored, error) {
	path, err := Find(dir)
	if err != nil {
		return nil, err
	}
	return open(path)
}

func (b *stored) verify(ctx context.Context) (Report, error) {
	report := Report{Path: b.path, Manifest: b.manifest, keys: keyring.Stored{}}
	if err := b.checkNames(); err != nil {
		return report, err
	}
	for _, t := range b.manifest.Tables {
		err := b.eachRow(ctx, t, func(columns []store.Column, values []any) {
			if t.Name == installationTable {
				report.note(columns, values)
			}
		})
		if err != nil {
			return report, err
		}
	}
	if err := b.verifyBlobs(ctx); err != nil {
		return report, err
	}
	return report, b.verifyKey()
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

// eachRow calls do with the rows of a table, and checks their file.
func (b *stored) eachRow(ctx context.Context, t Table, do func(columns []store.Column, values []any)) error {
	name := filepath.Join(tablesDir, t.Name+tableSuffix)
	return b.lines(name, t.Part, func(r *bufio.Reader) error {
		columns, err := readColumns(r)
		if err != nil {
			return err
		}
		var rows int64
		for values, err := range readRows(r, columns) {
			if err := errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			rows++
			do(columns, values)
		}
		if rows != t.Rows {
			return fmt.Errorf("it has %d rows instead of %d", rows, t.Rows)
		}
		return nil
	})
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

// verifyKey checks the sealed key. Only who knows the passphrase can open it.
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

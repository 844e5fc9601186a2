// Package backup writes an installation to a directory, verifies such backups and restores them. Their format does
// not depend on the engine of the database; see docs/adr/0063-backup.md.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Format is the version of the format that this program writes and reads.
const Format = 1

// The names in a backup.
const (
	manifestName = "manifest.json"
	tablesDir    = "tables"
	blobsDir     = "blobs"
	blobsName    = "blobs.jsonl.zst"
	keyName      = "master-key.age"
	tableSuffix  = ".jsonl.zst"
)

const (
	// timeLayout is the name of a backup: its time in UTC.
	timeLayout    = "2006-01-02T15-04-05Z"
	partialPrefix = ".partial-"
	lockName      = ".lock"
)

const (
	maxManifest = 4 << 20
	// maxListed bounds the number of missing blobs that a manifest names.
	maxListed = 1000
)

// Manifest describes a backup. It is the last file that is written.
type Manifest struct {
	Format       int       `json:"format"`
	Server       string    `json:"server"` // version of the program
	Engine       string    `json:"engine"`
	Time         time.Time `json:"time"` // of the snapshot
	Installation string    `json:"installation"`
	Schema       []int64   `json:"schema"` // versions of the migrations
	Tables       []Table   `json:"tables"`
	Blobs        Blobs     `json:"blobs"`
	Key          *Part     `json:"key,omitempty"`
	// Missing are states of which the installation had no content when the backup was made. Only the first are listed.
	Missing []string `json:"missing,omitempty"`
}

// Part is a file of a backup.
type Part struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Table is the file of a table.
type Table struct {
	Part
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

// Blobs is the list of the blobs.
type Blobs struct {
	Part
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"` // of the blobs
}

// Rows returns the number of rows of all tables.
func (m Manifest) Rows() (n int64) {
	for _, t := range m.Tables {
		n += t.Rows
	}
	return n
}

// Size returns the size of all files except the manifest.
func (m Manifest) Size() int64 {
	size := m.Blobs.Size + m.Blobs.Bytes
	for _, t := range m.Tables {
		size += t.Size
	}
	if m.Key != nil {
		size += m.Key.Size
	}
	return size
}

// decodeManifest reads a manifest. It refuses members that this program does not know.
func decodeManifest(data []byte) (Manifest, error) {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Manifest{}, fmt.Errorf("%s is damaged: %w", manifestName, err)
	}
	if version.Format != Format {
		return Manifest{}, fmt.Errorf("the backup has format %d, but this program reads format %d: use the program that wrote it, or a later one", version.Format, Format)
	}
	var m Manifest
	strict := json.NewDecoder(strings.NewReader(string(data)))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("%s is damaged: %w", manifestName, err)
	}
	if strict.More() {
		return Manifest{}, fmt.Errorf("%s is damaged: it has a second value", manifestName)
	}
	seen := map[string]bool{}
	for _, t := range m.Tables {
		if !isTableName(t.Name) || seen[t.Name] {
			return Manifest{}, fmt.Errorf("%s is damaged: the table %.64q has no valid name, or occurs twice", manifestName, t.Name)
		}
		seen[t.Name] = true
	}
	return m, nil
}

// isTableName reports whether a name consists of lower-case letters, digits and '_'.
func isTableName(name string) bool {
	return name != "" && len(name) <= 63 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// damaged describes a problem of a file.
func damaged(name string, err error) error {
	return fmt.Errorf("the backup is damaged: %s: %w", name, err)
}

var errContent = errors.New("its content does not match the hash in the list")

// explain says what an error of creating a database means for a backup.
func explain(err error, m Manifest) error {
	if newer, ok := errors.AsType[*store.NewerSchemaError](err); ok {
		return fault.Wrap(fault.KindInvalid, err, "the backup is of a newer workflow-server, %s: its schema has version %d, which this program does not know; restore it with that version or a later one", m.Server, newer.Version)
	}
	if _, ok := errors.AsType[*store.NotEmptyError](err); ok {
		return fault.Wrap(fault.KindConflict, err, "%s", err.Error())
	}
	return err
}

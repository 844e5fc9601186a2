package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"workflowagent/internal/settings"
	"workflowagent/internal/settings/conffile"
	"workflowagent/internal/sys/pathowner"
)

// CheckPlace returns an error if another user than root can replace root's configuration file or what is on the way to
// it, because root could then write to any file.
func CheckPlace(path string, uid int) error {
	if uid != 0 {
		return nil
	}
	for existing := path; ; existing = filepath.Dir(existing) {
		if _, err := os.Lstat(existing); errors.Is(err, fs.ErrNotExist) && existing != filepath.Dir(existing) {
			continue
		}
		owner, err := pathowner.Of(existing)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a link to nothing, which is not written
		}
		if err == nil && owner.UID != 0 {
			err = fmt.Errorf("%s belongs to user %d", existing, owner.UID)
		}
		if err != nil {
			return fmt.Errorf("not writing %s as root: %w: run the command as the user who owns the directory, or name a file in a directory of root with --config", path, err)
		}
		return nil
	}
}

// Edit is a change of a configuration file.
type Edit struct {
	Path    string
	Was     []byte // nil if the file does not exist
	Text    []byte
	Readers *int // the group that can read a new file, or nil
	Changes []settings.Change
	// Source returns the origin of a key's value in the configuration with the change.
	Source func(key string) settings.Source
}

// Write writes the file, unless it already has the text, and tells the operator what it did.
func (e Edit) Write(out io.Writer) (written bool, err error) {
	if e.Was != nil && bytes.Equal(e.Was, e.Text) {
		fmt.Fprintln(out, "Nothing to change: the file has these settings.")
		return false, nil
	}
	note := ""
	if e.Was == nil {
		err = conffile.Create(e.Path, e.Text, e.Readers)
	} else {
		note, err = conffile.Write(e.Path, e.Text)
	}
	if err != nil {
		return false, fmt.Errorf("%w; nothing was changed", err)
	}
	fmt.Fprintf(out, "Wrote %s.\n", e.Path)
	if note != "" {
		fmt.Fprintf(out, "Note: %s.\n", note)
	}
	for _, change := range e.Changes {
		if source := e.Source(change.Key); source.Kind == settings.FromEnv {
			fmt.Fprintf(out, "Note: the variable %s is set here and overrides %s in the file.\n", source.Name, change.Key)
		}
	}
	return true, nil
}

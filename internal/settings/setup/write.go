package setup

import (
	"bytes"
	"fmt"
	"io"

	"workflowagent/internal/settings"
	"workflowagent/internal/settings/conffile"
)

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

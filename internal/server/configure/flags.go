package configure

import (
	"errors"
	"fmt"
	"strings"

	"workflowagent/internal/server/config"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/setup"
)

// flags returns the flags that set settings.
func (w *writer) flags() setup.Flags {
	f := setup.Flags{
		Table: config.Table(), Dirs: w.Load.Dirs(), Set: w.Set, Secret: "set KEY_file to its path, such as metrics_token_file",
	}
	for _, key := range Keys() {
		f.List = append(f.List, setup.Flag{Name: "--" + strings.ReplaceAll(key, "_", "-"), Key: key, Value: w.Given[key]})
	}
	return f
}

func (w *writer) fromFlags(flags setup.Flags) ([]settings.Change, error) {
	if !flags.Given() {
		return nil, settings.Invalid(errors.New("no setting is given: use --external-url and the other flags, or answer the questions of configure on a terminal"))
	}
	changes, err := flags.Changes()
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		if change.Key == "database" && config.Database(change.Value).HasPassword() {
			return nil, settings.Invalid(fmt.Errorf("--database: contains a password, and other users can read a program's arguments: remove the password, and use --database-password-file"))
		}
	}
	if w.text == nil && w.Given["data_dir"] == "" && !sets(changes, "data_dir") {
		changes = append(changes, settings.Change{Key: "data_dir", Value: w.dataDir()}) // the default depends on the current directory
	}
	return changes, nil
}

func sets(changes []settings.Change, key string) bool {
	for _, c := range changes {
		if c.Key == key {
			return true
		}
	}
	return false
}

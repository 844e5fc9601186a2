package config

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"

	"workflowagent/internal/settings/conffile"
)

// Target returns the path of the file to write: the value of --config, the existing file that an
// agent would read, or the path of a new file. For root, a new file is in /etc. For other users, it
// is in Homebrew's etc directory or the install script's directory if the binary is installed
// there, and otherwise in the home directory.
func Target(o LoadOptions) (string, error) {
	if o.Path != "" {
		return o.Dirs().Absolute(o.Path)
	}
	found, err := Find(o)
	switch {
	case err != nil:
		return "", err
	case found.Path != "":
		return found.Path, nil
	case o.UID == 0 && o.Etc != "":
		return filepath.Join(o.Etc, FileName), nil
	case o.brewEtc() != "":
		return filepath.Join(o.brewEtc(), FileName), nil
	case !filepath.IsAbs(o.Home):
		return "", errors.New("the home directory for the configuration file is unknown: name the file with --config")
	case strings.HasPrefix(o.Binary, filepath.Join(o.Home, ".pulumi")+string(filepath.Separator)):
		dir := cmp.Or(o.installRoot(), filepath.Dir(o.Binary))
		return filepath.Join(dir, FileName), nil
	}
	return filepath.Join(o.Home, FileName), nil
}

// ReadText returns the text of a configuration file that is about to be changed, after the same
// checks as [Load]. It returns nil if the file does not exist.
func ReadText(path string, o LoadOptions) ([]byte, error) {
	return conffile.ReadText(path, o.UID, atRisk)
}

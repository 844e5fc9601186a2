package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// choicesText begins the file with the choices.
const choicesText = `# What "` + DefaultName + ` service install" was told; it keeps to it
# when it runs again. Change it there, not here: --docker=false, for instance.
`

// Chosen returns the options with the account, profile, configuration and engine
// that an earlier installation of the service was told, so that an upgrade loses no
// choice of the administrator.
func Chosen(o Options) (Options, error) {
	s, err := Open(o)
	if err != nil {
		return o, err
	}
	return readChoices(choicesFile(s), o)
}

// Remember keeps what the options chose for the next installation of the service.
// The file is beside the environment file, outlives the removal of a package, and
// goes with an uninstallation.
func Remember(s Service, o Options) error {
	return writeChoices(choicesFile(s), o)
}

// choicesFile is beside the environment file.
func choicesFile(s Service) string {
	return strings.TrimSuffix(s.EnvironmentFile(), ".env") + ".choices"
}

func readChoices(path string, o Options) (Options, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("reading what the service was installed with: %w", err)
	}
	chosen, err := ParseEnvironment(string(text))
	if err != nil {
		return o, fmt.Errorf("%s: %w; delete the file to choose anew", path, err)
	}
	o.Account, o.Config, o.Profile = chosen["ACCOUNT"], chosen["CONFIG"], Profile(chosen["PROFILE"])
	if docker := chosen["DOCKER"]; docker != "" {
		if o.Docker, err = strconv.ParseBool(docker); err != nil {
			return o, fmt.Errorf("%s: DOCKER is neither true nor false; delete the file to choose anew", path)
		}
	}
	return o, nil
}

func writeChoices(path string, o Options) error {
	chosen := map[string]string{"ACCOUNT": o.Account, "CONFIG": o.Config, "PROFILE": string(o.Profile)}
	if o.Docker {
		chosen["DOCKER"] = "true"
	}
	text, err := editEnvironment(choicesText, chosen)
	switch {
	case err != nil:
	case text == choicesText:
		err = forgetChoices(path)
	default:
		_, err = replaceFile(path, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("remembering what the service was installed with: %w", err)
	}
	return nil
}

func forgetChoices(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

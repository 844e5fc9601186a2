package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"workflowagent/internal/settings"
)

// Flag is a flag that sets one setting. An empty value means that the flag is not given.
type Flag struct {
	Name  string // with dashes, such as --listen
	Key   string
	Value string
}

// Flags are the flags that set settings.
type Flags struct {
	Table *settings.Table
	Dirs  settings.Dirs
	// Set are the values of --set, in the form KEY=VALUE.
	Set  []string
	List []Flag
	// Secret says how to set a secret, which must not be an argument: a phrase such as "use --token-file".
	Secret string
}

// Given reports whether a flag sets a setting.
func (f Flags) Given() bool {
	for _, flag := range f.List {
		if flag.Value != "" {
			return true
		}
	}
	return len(f.Set) > 0
}

// Changes returns the settings of the flags.
func (f Flags) Changes() ([]settings.Change, error) {
	var changes []settings.Change
	for _, setting := range f.Set {
		key, value, found := strings.Cut(setting, "=")
		key = strings.TrimSpace(key)
		switch {
		case f.Table.IsSecret(key) && value != "":
			return nil, settings.Invalid(fmt.Errorf("--set %s: other users can read the arguments of a program: put the value into a file and %s", key, f.Secret))
		case !found:
			return nil, settings.Invalid(errors.New("--set requires KEY=VALUE")) // the error omits the argument, which might be a secret
		}
		change, err := f.Table.Check(settings.Change{Key: key, Value: value}, f.Dirs)
		if err != nil {
			return nil, settings.Invalid(fmt.Errorf("--set: %w", err))
		}
		changes = append(changes, change)
	}
	for _, flag := range f.List {
		if flag.Value == "" {
			continue
		}
		change, err := f.Table.Check(settings.Change{Key: flag.Key, Value: flag.Value}, f.Dirs)
		if err != nil {
			return nil, settings.Invalid(fmt.Errorf("%s: %s", flag.Name, strings.TrimPrefix(err.Error(), flag.Key+": ")))
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// Describe returns err as text. It replaces the references to a missing or invalid key with the
// flags that set the key.
func (f Flags) Describe(err error, path string) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		_, problem, inFile := strings.Cut(strings.TrimPrefix(line, path+":"), ": ")
		if !inFile || !strings.HasPrefix(line, path+":") {
			problem = line
		}
		for _, flag := range f.List {
			switch {
			case !strings.HasPrefix(problem, flag.Key+": "):
			case flag.Value != "":
				lines[i] = flag.Name + ": " + strings.TrimPrefix(problem, flag.Key+": ")
			case problem == line: // the key is not in the file either
				lines[i] += ", or use " + flag.Name
			}
		}
	}
	return strings.Join(lines, "\n")
}

// maxSecret limits the size of a secret, in bytes.
const maxSecret = 64 << 10

// ReadSecret returns the secret, such as a "token", in the file that a flag names. "-" means in, the
// standard input.
func ReadSecret(flag, file, what string, in io.Reader) (string, error) {
	from, name := in, "the standard input"
	if file != "-" {
		f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return "", settings.Invalid(fmt.Errorf("%s: %w", flag, err))
		}
		defer f.Close()
		from, name = f, file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxSecret+1))
	secret := strings.TrimSpace(string(data))
	switch {
	case err != nil:
		return "", settings.Invalid(fmt.Errorf("%s: reading %s: %w", flag, name, err))
	case len(data) > maxSecret:
		return "", settings.Invalid(fmt.Errorf("%s: %s is larger than 64 KiB, the limit for a %s", flag, name, what))
	case secret == "":
		return "", settings.Invalid(fmt.Errorf("%s: %s is empty", flag, name))
	}
	return secret, nil
}

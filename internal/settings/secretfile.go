package settings

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/sys/boundedfile"
)

// secretSuffix ends the key of the file that contains the value of a secret: metrics_token_file for
// metrics_token.
const secretSuffix = "_file"

const maxSecret = 64 << 10 // bytes

// ReadSecretFiles sets each secret from the file that KEY_file names. A file in the directory of the
// service manager's credentials sets the setting that names it as its Credential, unless the setting
// has another source. The directory is "" if the service manager provides none. ReadSecretFiles must
// follow all other sources.
func (t *Table) ReadSecretFiles(credentials string) {
	for _, f := range t.Fields() {
		if file := t.field(f.Key + secretSuffix); f.isSecret() && file != nil && file.show() != "" {
			t.readSecretFile(f, file)
		} else if f.Credential != "" && credentials != "" && t.Sources[f.Key].IsDefault() {
			t.readCredential(f, filepath.Join(credentials, f.Credential))
		}
	}
}

// readSecretFile reads a secret from its file, unless the secret itself has a source of higher
// precedence.
func (t *Table) readSecretFile(f, file *Field) {
	named, given := t.Sources[file.Key], t.Sources[f.Key]
	switch c := precedence(given) - precedence(named); {
	case c > 0:
		return
	case c == 0:
		t.Problems.Add(given, f.Key, "is set in addition to "+file.Key+": remove one of them")
		return
	}
	text, err := readSecret(file.show())
	if err != nil {
		t.Problems.Add(named, file.Key, err.Error())
		return
	}
	t.set(f, text, Source{Kind: FromFile, Name: file.show()})
}

func (t *Table) readCredential(f *Field, path string) {
	source := Source{Kind: FromFile, Name: path}
	text, err := readSecret(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		t.Problems.Add(source, f.Key, err.Error())
	case f.isSecret():
		t.set(f, text, source)
	default: // a file with a secret
		t.set(f, path, source)
	}
}

func precedence(s Source) int {
	return slices.Index([]SourceKind{FromDefault, FromFile, FromEnv, FromFlag}, s.Kind)
}

func readSecret(path string) (string, error) {
	text, err := boundedfile.Read(path, maxSecret)
	if err != nil {
		return "", unreadableError{err}
	}
	secret := strings.TrimSpace(string(text))
	switch {
	case secret == "":
		return "", errors.New("names a file without content: write the secret to it")
	case hasControl(secret):
		return "", errors.New("names a file with several lines or control characters: write only the secret to it, on one line")
	}
	return secret, nil
}

type unreadableError struct{ err error }

func (e unreadableError) Error() string {
	return "cannot be read: correct the path or the permissions: " + e.err.Error()
}

func (e unreadableError) Unwrap() error { return e.err }

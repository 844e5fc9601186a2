package environ

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// maxPulumiEnv limits the file through which steps pass on variables, in bytes.
const maxPulumiEnv = 1 << 20

// secretName matches the names of variables that probably contain a secret. A variable that a step
// passes on is masked if its name matches, or if it was a secret in the settings. Other values,
// such as a region, must stay readable in the log.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|passphrase|credential|private|api_?key|access_?key|account_?key`)

func looksSecret(name string) bool { return secretName.MatchString(name) }

// load reads the variables that earlier steps have appended to the file PULUMI_ENV as lines
// NAME=value. The last line for a name wins. Only the names that identify the deployment are
// protected, because steps can run any code anyway.
func (e *Environment) load() (vars map[string]string, notices []string) {
	// A step owns the file's directory and might have replaced the file.
	file, err := os.OpenFile(e.pulumiEnv, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []string{"warning: reading PULUMI_ENV: " + err.Error()}
	}
	defer file.Close() // opened for reading only
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, []string{"warning: ignoring PULUMI_ENV: a step replaced the file by something else"}
	}
	data, err := io.ReadAll(io.LimitReader(file, maxPulumiEnv+1))
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // .NET begins files of UTF-8 with this mark
	switch {
	case err != nil:
		return nil, []string{"warning: reading PULUMI_ENV: " + err.Error()}
	case len(data) > maxPulumiEnv:
		return nil, []string{fmt.Sprintf("warning: ignoring PULUMI_ENV: the file is larger than %d bytes", maxPulumiEnv)}
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, []string{"warning: ignoring PULUMI_ENV: a step wrote the file in UTF-16: write UTF-8"}
	case len(strings.TrimSpace(string(data))) == 0:
		return nil, nil
	}
	notices = []string{"Loading PULUMI_ENV from " + e.pulumiEnv}
	vars = map[string]string{}
	number := 0
	for line := range strings.SplitSeq(string(data), "\n") {
		number++
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok || !validName(name) || strings.ContainsAny(name, " \t") || strings.ContainsRune(value, 0):
			// The line might contain a secret, so the notice does not quote it.
			notices = append(notices, fmt.Sprintf("warning: ignoring line %d of PULUMI_ENV: not of the form NAME=value", number))
		case hasAnyPrefix(name, ownPrefixes) || e.deployment && slices.Contains(identityNames, name):
			notices = append(notices, fmt.Sprintf("warning: ignoring line %d of PULUMI_ENV: %s is reserved", number, name))
		default:
			vars[name] = value
		}
	}
	return vars, notices
}

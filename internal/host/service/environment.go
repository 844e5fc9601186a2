package service

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ParseEnvironment reads an environment file as both systemd and the agent understand it: lines
// NAME=VALUE, the value optionally in single or double quotes, ignoring empty lines and those that
// begin with # or ;, without expansion or continued lines. Errors name the line, never a value.
func ParseEnvironment(text string) (map[string]string, error) {
	variables := map[string]string{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !validName(name) {
			return nil, fmt.Errorf("line %d is not NAME=VALUE", number)
		}
		value, err := unquote(value)
		if err != nil {
			return nil, fmt.Errorf("line %d, %s: %w", number, name, err)
		}
		variables[name] = value
	}
	return variables, nil
}

// CheckVariables refuses variables that an environment file cannot hold.
func CheckVariables(variables map[string]string) error {
	_, err := editEnvironment("", variables)
	return err
}

// editEnvironment returns the text with the variables set, or removed if the value is empty.
func editEnvironment(text string, variables map[string]string) (string, error) {
	if _, err := ParseEnvironment(text); err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), "=")
		if _, changed := variables[name]; ok && changed {
			continue
		}
		out.WriteString(strings.TrimRight(line, "\n") + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		switch {
		case !validName(name):
			return "", fmt.Errorf("%q is not the name of a variable", name)
		case strings.ContainsAny(value, "\n\r\x00"):
			return "", fmt.Errorf("the value of %s has a line break, which an environment file cannot hold", name)
		case value == "":
			continue
		}
		out.WriteString(name + "=" + quote(value) + "\n")
	}
	return out.String(), nil
}

func validName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// quote writes a value so that systemd.exec(5) and unquote read it back.
func quote(value string) string {
	if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@+=%") == "" {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value) + `"`
}

func unquote(value string) (string, error) {
	if value == "" || value[0] != '"' && value[0] != '\'' {
		if strings.ContainsAny(value, "\"'\\") {
			return "", fmt.Errorf("a value with quotes or backslashes must be in double quotes")
		}
		return value, nil
	}
	mark := value[0]
	var out strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == mark:
			if i != len(value)-1 {
				return "", fmt.Errorf("text after the closing quote")
			}
			return out.String(), nil
		case c == '\\' && mark == '"' && i+1 < len(value) && strings.IndexByte("\\\"$`", value[i+1]) >= 0:
			i++
			out.WriteByte(value[i])
		default:
			out.WriteByte(c)
		}
	}
	return "", fmt.Errorf("the quote is not closed")
}

const choicesText = `# What "` + DefaultName + ` service install" was told; it keeps to it
# when it runs again. Change it there, not here: --docker=false, for instance.
`

// Chosen returns the options with the account, profile, configuration and engine of an earlier
// installation of the service, so that an upgrade keeps the administrator's choices.
func Chosen(o Options) (Options, error) {
	s, err := Open(o)
	if err != nil {
		return o, err
	}
	return readChoices(choicesFile(s), o)
}

// Remember records the choices for the next installation of the service. The file is next to the
// environment file; it survives the removal of a package, but not an uninstallation.
func Remember(s Service, o Options) error {
	return writeChoices(choicesFile(s), o)
}

func choicesFile(s Service) string {
	return strings.TrimSuffix(s.EnvironmentFile(), ".env") + ".choices"
}

func readChoices(path string, o Options) (Options, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("reading the choices of the installation: %w", err)
	}
	chosen, err := ParseEnvironment(string(text))
	if err != nil {
		return o, fmt.Errorf("%s: %w; delete the file to choose again", path, err)
	}
	o.Account, o.Config, o.Profile = chosen["ACCOUNT"], chosen["CONFIG"], Profile(chosen["PROFILE"])
	if docker := chosen["DOCKER"]; docker != "" {
		if o.Docker, err = strconv.ParseBool(docker); err != nil {
			return o, fmt.Errorf("%s: DOCKER must be true or false; delete the file to choose again", path)
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
		return fmt.Errorf("writing the choices of the installation: %w", err)
	}
	return nil
}

func forgetChoices(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

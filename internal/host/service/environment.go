package service

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ParseEnvironment parses an environment file in the format that both systemd and the agent
// understand. Each line has the form NAME=VALUE. The value may be in single or double quotes. Empty
// lines and lines that begin with # or ; are ignored. Expansion and continued lines are not
// supported. Errors contain the line number, but never a value.
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

// CheckVariables returns an error if an environment file cannot represent the variables.
func CheckVariables(variables map[string]string) error {
	_, err := editEnvironment("", variables)
	return err
}

// editEnvironment returns text with the variables set. It removes a variable whose value is empty.
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

// quote returns a value in a form that systemd.exec(5) and unquote decode to the original value.
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

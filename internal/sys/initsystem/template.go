package initsystem

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Fill replaces {{Name}} in a template. It keeps or drops the lines between {{if Name}} or {{if not
// Name}}, {{else}} and {{end}}. It does not use text/template, which would make the agent a third
// larger: it links every exported method of every type into the binary.
func Fill(text string, values map[string]string, conditions map[string]bool) []byte {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "{{"+name+"}}", value)
	}
	replacer := strings.NewReplacer(pairs...)
	var out bytes.Buffer
	var open []bool // conditions of the enclosing {{if}}
	for line := range strings.Lines(text) {
		word, _ := strings.CutPrefix(strings.TrimSpace(line), "{{")
		name, isIf := strings.CutPrefix(word, "if ")
		name, negated := strings.CutPrefix(name, "not ")
		switch {
		case isIf:
			open = append(open, conditions[strings.TrimSuffix(name, "}}")] != negated)
		case word == "else}}":
			open[len(open)-1] = !open[len(open)-1]
		case word == "end}}":
			open = open[:len(open)-1]
		case !slices.Contains(open, false):
			_, _ = replacer.WriteString(&out, line) // writing to a buffer cannot fail
		}
	}
	return out.Bytes()
}

// UnitEscape escapes a value so that systemd does not expand it (systemd.unit(5), specifiers).
func UnitEscape(value string) string { return strings.ReplaceAll(value, "%", "%%") }

// UnitPath quotes a value as one word of a unit in which $ is not special: a path, or the program of a command
// line.
func UnitPath(value string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\t", `\t`).Replace(value)
	if strings.ContainsAny(value, " \t'\";\\") || value == "" {
		return `"` + escaped + `"`
	}
	return escaped
}

// unitArgument quotes a value as one argument of a command line in a unit, in which systemd expands variables
// (systemd.service(5), command lines).
func unitArgument(value string) string { return strings.ReplaceAll(UnitPath(value), "$", "$$") }

// UnitCommand returns a command line for a unit. The first argument is the program.
func UnitCommand(arguments ...string) string {
	quoted := make([]string, len(arguments))
	for i, argument := range arguments {
		if i == 0 {
			quoted[i] = UnitPath(argument)
		} else {
			quoted[i] = unitArgument(argument)
		}
	}
	return strings.Join(quoted, " ")
}

// ProtectHome returns the value of ProtectHome=, which blocks access to home directories unless one
// of the paths is in a home directory.
func ProtectHome(paths ...string) string {
	if slices.ContainsFunc(paths, inHome) {
		return "read-only"
	}
	return "yes"
}

// inHome reports whether path is in a home directory, or is a link to a path in one. The sandbox
// must then leave home directories readable.
func inHome(path string) bool {
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if path == home || strings.HasPrefix(path, home+string(filepath.Separator)) {
			return true
		}
	}
	resolved, err := os.Readlink(path)
	return err == nil && filepath.IsAbs(resolved) && resolved != path && inHome(resolved)
}

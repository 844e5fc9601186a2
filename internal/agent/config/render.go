package config

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Sample returns the content of pulumi-workflow-agent.yaml.sample: every key that is allowed in
// the file, with its documentation and its default or an example. Only the token is active.
func Sample() []byte {
	var b bytes.Buffer
	b.WriteString(`# ` + FileName + `
#
# The configuration of customer-managed-workflow-agent. The agent looks for this file in the
# current directory, the home directory, /etc and the directory of its binary. Remove the # before
# a key to change it; the value shown is the default, or an example where the default depends on
# the machine. docs/configuration.md says more.
`)
	var last group
	for _, f := range fields() {
		if f.envOnly {
			continue
		}
		if f.group != last {
			fmt.Fprintf(&b, "\n## %s\n", f.group)
			last = f.group
		}
		b.WriteByte('\n')
		comment(&b, f.doc)
		if f.requirement != "" {
			comment(&b, capital(f.requirement)+".")
		}
		if f.def == "" && f.defText != "" {
			comment(&b, "Default: "+f.defText+".")
		}
		comment(&b, "Environment variable override: "+f.env)
		if f.requirement == "" || f.kind != kindSecret {
			b.WriteByte('#')
		}
		fmt.Fprintf(&b, "%s: %s\n", f.name, f.sampleValue())
	}
	return b.Bytes()
}

func comment(b *bytes.Buffer, text string) {
	for _, line := range wrap(text, 98) {
		b.WriteString("# " + line + "\n")
	}
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func (f *field) sampleValue() string {
	text := f.def
	if text == "" {
		text = f.example
	}
	switch {
	case f.kind == kindList:
		if strings.HasPrefix(text, "[") {
			return text
		}
		return "[" + strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), ", ") + "]"
	case slices.Contains([]kind{kindBool, kindInt, kindCPUs, kindSecret}, f.kind) || f.name == "auto_update":
		return text
	default:
		return `"` + text + `"`
	}
}

// Reference returns the content of docs/configuration.md.
func Reference() []byte {
	var b bytes.Buffer
	b.WriteString(referenceIntro)
	var last group
	for _, f := range fields() {
		if f.group != last {
			fmt.Fprintf(&b, "\n## %s\n", f.group)
			if f.envOnly {
				b.WriteString("\nThese exist as variables only and have no place in the file.\n")
			}
			last = f.group
		}
		title := f.name
		if f.envOnly {
			title = f.env
		}
		fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n", title, strings.ReplaceAll(strings.Join(wrap(f.doc, 100), "\n"), "*", `\*`))
		fmt.Fprintf(&b, "* Default: %s\n", f.defaultForDocs())
		if f.choices != nil {
			fmt.Fprintf(&b, "* Values: `%s`\n", strings.Join(f.choices, "`, `"))
		} else {
			fmt.Fprintf(&b, "* Form: %s\n", f.form())
		}
		if f.requirement != "" {
			fmt.Fprintf(&b, "* %s\n", capital(f.requirement))
		}
		if !f.envOnly {
			fmt.Fprintf(&b, "* Variable: `%s`\n", f.env)
			fmt.Fprintf(&b, "* In the file: `%s: %s`\n", f.name, f.sampleValue())
		}
	}
	b.WriteString(referenceOutro)
	return b.Bytes()
}

func (f *field) defaultForDocs() string {
	switch {
	case f.def != "":
		return "`" + f.def + "`"
	case f.defText != "":
		return f.defText
	default:
		return "none"
	}
}

func (f *field) form() string {
	switch f.kind {
	case kindSecret:
		return "text; never shown by the agent"
	case kindBool:
		return "`true` or `false`"
	case kindInt:
		return fmt.Sprintf("whole number from %d to %d", f.min, f.max)
	case kindDuration:
		return fmt.Sprintf("duration from %s", f.durationBounds())
	case kindSeconds:
		return fmt.Sprintf("duration, or a bare number of seconds, from %s", f.durationBounds())
	case kindList:
		if f.sep == "," {
			return "list; comma-separated in the variable"
		}
		return "list; space-separated in the variable"
	case kindPath:
		return "path; a relative one starts at the current directory, `~/` at the home directory"
	case kindURL:
		return "URL"
	case kindBytes:
		return "size with the unit `k`, `m` or `g`, at least " + formatBytes(f.min)
	case kindCPUs:
		return "number from 0.01 to 4096"
	default:
		return "text"
	}
}

// WriteHelp writes a table of all keys with their variables and defaults, for --help.
func WriteHelp(w io.Writer) error {
	var last group
	for _, f := range fields() {
		if f.group != last {
			if _, err := fmt.Fprintf(w, "\n%s:\n", f.group); err != nil {
				return err
			}
			last = f.group
		}
		name, override := f.name, " ["+f.env+"]"
		if f.envOnly {
			name, override = f.env, ""
		}
		value := f.def
		if value == "" {
			value = f.defText
		}
		if value != "" {
			value = " (default: " + value + ")"
		}
		doc, _, _ := strings.Cut(strings.Join(strings.Fields(f.doc), " "), ". ")
		if _, err := fmt.Fprintf(w, "  %s%s\n        %s%s\n", name, override, strings.TrimSuffix(doc, "."), value); err != nil {
			return err
		}
	}
	return nil
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

const referenceIntro = `<!-- Generated from the field table in internal/agent/config by go generate; do not edit. -->

# Configuration of the agent

In most cases only ` + "`token`" + ` is needed:

` + "```yaml" + `
# ` + FileName + `
token: pul-xxx
` + "```" + `

Every key can also be set with a variable, which is ` + "`" + envPrefix + "`" + ` and the key in upper case. A variable
wins over the file; an empty one counts as not set. ` + "`customer-managed-workflow-agent config show`" + `
prints the value of every key in effect and where it comes from, secrets redacted.

## The file

The agent reads one file: the one given with ` + "`--config`" + `, or the first it finds of

1. the current directory,
2. the home directory,
3. ` + "`/etc`" + `,
4. the directory of the agent's binary, symbolic links followed,

where it looks in each for ` + "`" + FileName + "`" + ` and then for the old name
` + "`" + OldFileName + "`" + `. Further files have no effect and are named in the log.

The file decides which server may run commands on this host. So the agent refuses a file that other
users can write to, or that belongs to anybody but root and the agent's own user, and warns about a
file with a token that other users can read.

Unknown keys, keys that are set twice and values that make no sense are errors, which name the file,
the line and the key, but never a secret. A key without a value, or with an empty one, has its
default. An empty list of what is allowed is an error, because it could mean nothing or everything.

## Writing it

` + "`customer-managed-workflow-agent configure`" + ` writes the file. On a terminal it asks for the URL of the
control plane, the token, which is not shown, and where jobs run; Enter keeps what is there. Elsewhere
it takes flags, and the token from a file or the standard input, never as an argument:

` + "```sh" + `
customer-managed-workflow-agent configure --service-url https://pulumi.example.com --token-file ./token
customer-managed-workflow-agent configure --set max_concurrent_jobs=4 --set allowed_images=pulumi/*,example.com/**
customer-managed-workflow-agent configure --set docker_memory=     # its default again
` + "```" + `

Before it writes, it checks the result like ` + "`run`" + ` would, asks the server whether it takes the token, and
looks for the engine and the runner; ` + "`--no-check`" + ` leaves out the asking. It changes only the lines of the
keys that are set: comments, order and form stay. The file is replaced whole or not at all, keeps its
owner and group, and loses the permissions of other users, because it holds a token. Without a file
it makes one: in ` + "`/etc`" + ` for root, beside the binary after the install script, in Homebrew's ` + "`etc`" + ` after ` + "`brew install`" + `, else in the home directory;
` + "`--config`" + ` names another place. [operations.md](operations.md#is-everything-well-the-doctor) says how to look at everything else.

## Values

Durations are written as in Go: numbers with the units ` + "`ns`, `us`, `ms`, `s`, `m` and `h`" + `, such
as ` + "`300ms`, `30s` or `1h30m`" + `.
`

const referenceOutro = `
## Keys of older and other agents

* ` + "`version`" + ` is accepted and has no effect.
* ` + "`workflow_runners_directory` and `workflow_runners_embeddable`" + ` are accepted with a warning and have
  no effect; ` + "`working_directory`" + ` took their place.
* ` + "`ecs`" + ` and its settings are refused: this agent has no ECS target.
* Unknown variables that begin with ` + "`" + envPrefix + "`" + ` only cause a warning, because Kubernetes makes such
  variables out of the names of services.
`

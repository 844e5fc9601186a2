package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"workflowagent/internal/agent/config"
)

// newManCommand returns the command that writes the manual pages, for packages.
func newManCommand(version string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man --dir DIR",
		Short: "Write the manual pages, one for each command",
		Long: `Write the manual pages into a directory, one for each command. Their date is that of
SOURCE_DATE_EPOCH, so that a package can be built again byte for byte.`,
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError{fmt.Errorf("--dir is needed; see %s --help", cmd.CommandPath())}
			}
			date, err := manDate(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return usageError{err}
			}
			return writeManual(cmd.Root(), dir, version, date)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "where to write them; made if it is missing")
	return cmd
}

// manDate is the date of the pages: of an epoch in seconds, or today.
func manDate(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: it must be a number of seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// writeManual writes the page of a command and those of the commands below it.
func writeManual(cmd *cobra.Command, dir, version string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory for the manual pages: %w", err)
	}
	page, err := manPage(cmd, version, date)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), page, 0o644); err != nil {
		return fmt.Errorf("writing a manual page: %w", err)
	}
	for _, child := range documented(cmd) {
		if err := writeManual(child, dir, version, date); err != nil {
			return err
		}
	}
	return nil
}

// documented returns the commands below one that have pages.
func documented(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, child := range cmd.Commands() {
		if !child.Hidden && child.Name() != "help" {
			all = append(all, child)
		}
	}
	return all
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns a page as roff with the man macros.
func manPage(cmd *cobra.Command, version string, date time.Time) ([]byte, error) {
	m := &manual{}
	fmt.Fprintf(&m.b, ".TH %s 1 %s %s\n", quoted(strings.ToUpper(pageName(cmd))), date.Format(time.DateOnly), quoted(cmd.Root().Name()+" "+version))
	m.section("NAME")
	m.text(pageName(cmd) + " - " + lowerFirst(cmd.Short))
	m.section("SYNOPSIS")
	m.text(cmd.UseLine())
	m.section("DESCRIPTION")
	if cmd.Long != "" {
		m.text(cmd.Long)
	} else {
		m.text(cmd.Short + ".")
	}
	m.flags("OPTIONS", cmd.NonInheritedFlags())
	m.flags("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		m.section("EXAMPLES")
		m.text(cmd.Example)
	}
	if cmd.Name() == "run" {
		m.section("SETTINGS")
		var settings bytes.Buffer
		if err := config.WriteHelp(&settings); err != nil {
			return nil, fmt.Errorf("listing the settings: %w", err)
		}
		m.literal(strings.Split(strings.TrimRight(settings.String(), "\n"), "\n"))
	}
	if !cmd.HasParent() {
		m.section("EXIT STATUS")
		m.text("0: done. 1: something went wrong; trying again may help. 2: the command line or the configuration is wrong. Other codes are in the pages of the commands that have them.")
	}
	m.related(cmd)
	return m.b.Bytes(), nil
}

// manual is a page under construction.
type manual struct{ b bytes.Buffer }

func (m *manual) section(title string) { m.b.WriteString(".SH " + quoted(title) + "\n") }

// text writes paragraphs as help texts have them: separated by empty lines, and literal where
// lines are indented.
func (m *manual) text(s string) {
	for i, block := range strings.Split(strings.Trim(s, "\n"), "\n\n") {
		if i > 0 {
			m.b.WriteString(".PP\n")
		}
		lines := strings.Split(block, "\n")
		if strings.HasPrefix(lines[0], "  ") {
			m.literal(lines)
			continue
		}
		for _, line := range lines {
			m.b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
	}
}

// literal writes lines as they are.
func (m *manual) literal(lines []string) {
	m.b.WriteString(".nf\n")
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			m.b.WriteString(".sp\n")
			continue
		}
		m.b.WriteString(roff(strings.TrimRight(line, " ")) + "\n")
	}
	m.b.WriteString(".fi\n")
}

func (m *manual) flags(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	m.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		option := "--" + f.Name
		if f.Shorthand != "" {
			option = "-" + f.Shorthand + ", " + option
		}
		m.b.WriteString(".TP\n\\fB" + roff(option) + "\\fR")
		if name != "" {
			m.b.WriteString(" \\fI" + roff(name) + "\\fR")
		}
		m.b.WriteString("\n" + roff(usage) + "\n")
	})
}

// related names the pages above and below.
func (m *manual) related(cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, pageName(cmd.Parent()))
	}
	for _, child := range documented(cmd) {
		pages = append(pages, pageName(child))
	}
	if len(pages) == 0 {
		return
	}
	m.section("SEE ALSO")
	for i, page := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		m.b.WriteString("\\fB" + roff(page) + "\\fR(1)" + end + "\n")
	}
}

// roff returns one line of text without any meaning to the formatter.
func roff(line string) string {
	var b strings.Builder
	for i, r := range line {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`) // a minus, which can be copied into a shell
		case i == 0 && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r > 0x7e:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// quoted is an argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// Package settings reads a program's settings as described by one table.
//
// The program's [Table] has one [Field] per setting. A field points to its value, whose type
// determines the kind of the setting. Defaults, the strict YAML file, environment variables,
// command-line flags, help, and edits of the file are all derived from the table. An error names
// the file, line and key, or the variable or flag. It never contains a value, because the value
// might be a misplaced secret.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Field is one setting.
type Field struct {
	// Key is the name in the file. Env is the environment variable that takes precedence over the
	// file. If Env is empty, [NewTable] derives it from Key.
	Key, Env string
	// Value points to a string, bool, int, int64, time.Duration, []string, [encoding.TextUnmarshaler],
	// or a type of this package.
	Value any
	// Default has the form of the environment variable; "" means unset. DefaultText describes a
	// default that depends on the machine or on other settings.
	Default, DefaultText string
	Example              string
	// Choices are the allowed values of a string, or of the entries of a list. nil allows any
	// value.
	Choices []string
	// Check returns an error with the reason if a string is invalid. The error does not contain the
	// string.
	Check func(text string) error
	// Separator separates a list's entries in the environment variable: "," or " ".
	Separator string
	// NotEmpty rejects an empty list, which looks like "nothing" but would mean "everything".
	NotEmpty bool
	// Min and Max are inclusive limits, as a number, in bytes or in nanoseconds. A zero Max means
	// no limit.
	Min, Max int64
	// Requirement states when the key must be set; "" means never.
	Requirement string
	Doc         string
	// Credential names the service manager's credential with the secret, or with the file that this
	// setting names. "" means none.
	Credential string
	// Reload is set if the program applies a change of the setting while it runs.
	Reload bool

	envOnly bool
}

// Flag returns the setting's command-line flag, without dashes in front.
func (f *Field) Flag() string { return strings.ReplaceAll(f.Key, "_", "-") }

// Usage returns the first sentence of the documentation for the help of the flag, with the setting's
// variable, choices, and the description of its default.
func (f *Field) Usage() string {
	text := f.summary()
	if f.Choices != nil {
		text += " (one of: " + strings.Join(f.Choices, ", ") + ")"
	}
	if f.Default == "" && f.DefaultText != "" {
		text += " (default: " + f.DefaultText + ")"
	}
	return text + " [" + f.Env + "]"
}

func (f *Field) summary() string {
	doc, _, _ := strings.Cut(strings.Join(strings.Fields(f.Doc), " "), ". ")
	return strings.TrimSuffix(doc, ".")
}

// Group is a titled section of a table.
type Group struct {
	Title string
	// EnvOnly means that these settings can be set only by environment variables, not in the file.
	EnvOnly bool
	Fields  []Field
}

// Table contains the settings of one configuration.
type Table struct {
	Groups []Group
	Dirs   Dirs
	// Obsolete contains keys that are accepted but have no effect, each with a warning or "".
	Obsolete map[string]string
	// Refuse returns a specific reason to reject a key that is not in the table, or "". It may be
	// nil.
	Refuse func(key string) string

	// Sources, Problems and Warnings record what ReadFile, ReadEnv and ReadFlags found.
	Sources  map[string]Source
	Problems Problems
	Warnings []string
}

// NewTable returns a table whose environment variables have the given prefix. It does not change
// the values.
func NewTable(prefix string, groups ...Group) *Table {
	t := &Table{Groups: groups, Sources: map[string]Source{}}
	for _, group := range groups {
		for i := range group.Fields {
			f := &group.Fields[i]
			f.Env = cmp.Or(f.Env, prefix+strings.ToUpper(f.Key))
			f.envOnly = group.EnvOnly
		}
	}
	return t
}

// Fields returns all fields in order.
func (t *Table) Fields() []*Field {
	var all []*Field
	for _, group := range t.Groups {
		for i := range group.Fields {
			all = append(all, &group.Fields[i])
		}
	}
	return all
}

func (t *Table) field(key string) *Field {
	for _, f := range t.Fields() {
		if f.Key == key {
			return f
		}
	}
	return nil
}

// Choices returns the allowed values of a key, or of the entries of its list. It returns nil for an
// unknown key, and for a key without a fixed set of values.
func (t *Table) Choices(key string) []string {
	if f := t.field(key); f != nil {
		return f.Choices
	}
	return nil
}

// IsSecret reports whether the key's value is secret, so that it must neither be printed nor be
// passed as a program's argument.
func (t *Table) IsSecret(key string) bool {
	f := t.field(key)
	return f != nil && f.isSecret()
}

// set sets a field from text in the form of the environment variable. Blank text changes nothing.
func (t *Table) set(f *Field, text string, source Source) {
	isSet, err := f.parse(text, t.Dirs)
	t.record(f, isSet, err, source)
}

func (t *Table) record(f *Field, isSet bool, err error, source Source) {
	switch {
	case err != nil:
		t.Problems.Add(source, f.Key, err.Error())
	case isSet:
		t.Sources[f.Key] = source
	}
}

// SetDefaults sets the default of each field that has one.
func (t *Table) SetDefaults() {
	for _, f := range t.Fields() {
		t.set(f, f.Default, Source{Kind: FromDefault})
	}
}

// ReadEnv reads the environment variables. It ignores blank ones.
func (t *Table) ReadEnv(getenv func(name string) string) {
	for _, f := range t.Fields() {
		t.set(f, getenv(f.Env), Source{Kind: FromEnv, Name: f.Env})
	}
}

// ReadFlags reads the given flags, which are named by key. A blank flag restores the default.
func (t *Table) ReadFlags(given map[string]string) {
	for _, f := range t.Fields() {
		if text, ok := given[f.Key]; ok {
			t.set(f, cmp.Or(strings.TrimSpace(text), f.Default), Source{Kind: FromFlag, Name: "--" + f.Flag()})
		}
	}
}

// Changed returns the keys, in the order of the table, whose values differ in another table of the
// same settings.
func (t *Table) Changed(other *Table) []string {
	var keys []string
	for _, f := range t.Fields() {
		if o := other.field(f.Key); o == nil || !reflect.DeepEqual(f.Value, o.Value) {
			keys = append(keys, f.Key)
		}
	}
	return keys
}

// Setting is an effective value in a form for display.
type Setting struct {
	Key    string
	Value  string // [REDACTED] for a secret that is set
	Source Source
}

// Effective returns the values and their sources, in the order of the table.
func (t *Table) Effective(sources map[string]Source) []Setting {
	var all []Setting
	for _, f := range t.Fields() {
		all = append(all, Setting{f.Key, f.show(), sources[f.Key]})
	}
	return all
}

// WriteHelp writes all keys with their environment variables and defaults, for --help.
func (t *Table) WriteHelp(w io.Writer) error {
	var help strings.Builder
	for _, group := range t.Groups {
		fmt.Fprintf(&help, "\n%s:\n", group.Title)
		for _, f := range group.Fields {
			name, override := f.Key, " ["+f.Env+"]"
			if group.EnvOnly {
				name, override = f.Env, ""
			}
			value := cmp.Or(f.Default, f.DefaultText)
			if value != "" {
				value = " (default: " + value + ")"
			}
			if f.Choices != nil {
				value = " (one of: " + strings.Join(f.Choices, ", ") + ")" + value
			}
			fmt.Fprintf(&help, "  %s%s\n        %s%s\n", name, override, f.summary(), value)
		}
	}
	_, err := io.WriteString(w, help.String())
	return err
}

// SourceKind is the kind of a value's source.
type SourceKind string

// The kinds of sources, in increasing precedence.
const (
	FromDefault SourceKind = "default"
	FromFile    SourceKind = "file"
	FromEnv     SourceKind = "env"
	FromFlag    SourceKind = "flag"
)

// Source is a value's source. The zero value means the default.
type Source struct {
	Kind SourceKind
	// Name is the file's path, or the name of the variable or flag.
	Name string
	Line int // line number in a file, from 1
}

// IsDefault reports whether no file, variable or flag sets the value.
func (s Source) IsDefault() bool { return s.Kind == "" || s.Kind == FromDefault }

// String returns "default", "FILE:LINE", "FILE", "env NAME" or "flag --NAME".
func (s Source) String() string {
	switch {
	case s.IsDefault():
		return string(FromDefault)
	case s.Kind == FromFile && s.Line == 0:
		return s.Name // a file that contains only this value
	case s.Kind == FromFile:
		return s.Name + ":" + strconv.Itoa(s.Line)
	default:
		return string(s.Kind) + " " + s.Name
	}
}

// Problems collects all errors, so that an operator can correct them at once.
type Problems []problem

type problem struct {
	source Source
	key    string // "" if the problem is not about a key
	what   string // problem: remedy
}

// Add adds a problem. what has the form "problem: remedy" and must not contain a value.
func (ps *Problems) Add(source Source, key, what string) {
	*ps = append(*ps, problem{source, key, what})
}

// maxProblems limits the number of problems in an error. A file with more is probably the wrong
// file.
const maxProblems = 20

// Err returns nil if there are no problems. Otherwise it returns one error with a line "FILE:LINE:
// key: problem: remedy" for each problem. Problems in the file come first, in the file's order. Err
// masks the secrets.
func (ps Problems) Err(secrets ...Secret) error {
	rank := []SourceKind{FromFile, FromEnv, FromFlag, FromDefault, ""}
	slices.SortStableFunc(ps, func(a, b problem) int {
		return cmp.Or(slices.Index(rank, a.source.Kind)-slices.Index(rank, b.source.Kind), a.source.Line-b.source.Line)
	})
	var errs []error
	for _, p := range ps[:min(len(ps), maxProblems)] {
		text := p.what
		if p.key != "" {
			text = p.key + ": " + text
		}
		if !p.source.IsDefault() {
			text = p.source.String() + ": " + text
		}
		errs = append(errs, errors.New(Scrub(text, secrets...)))
	}
	if more := len(ps) - maxProblems; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more problems: correct these first, or check that it is the right file", more))
	}
	return errors.Join(errs...)
}

var accessToken = regexp.MustCompile(`\bpul-[0-9A-Za-z]{8,}`)

// Scrub returns text without secrets and access tokens. Messages do not contain values, but the
// name of a file, variable or key might contain a token.
func Scrub(text string, secrets ...Secret) string {
	for _, secret := range secrets {
		if value := secret.Reveal(); len(value) >= 6 {
			text = strings.ReplaceAll(text, value, redacted)
		}
	}
	return accessToken.ReplaceAllString(text, redacted)
}

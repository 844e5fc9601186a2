package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// problem is one thing that is wrong with the configuration. It never holds a value.
type problem struct {
	source Source
	key    string // "" if no key is to blame
	what   string // what is wrong: what to do
}

// Error returns "FILE:LINE: key: what is wrong: what to do". A default has no place to name.
func (p *problem) Error() string {
	var parts []string
	if p.source.Kind != FromDefault {
		parts = append(parts, p.source.String())
	}
	if p.key != "" {
		parts = append(parts, p.key)
	}
	return strings.Join(append(parts, p.what), ": ")
}

// problems collects what is wrong, so that a user can correct everything in one go.
type problems []*problem

func (ps *problems) add(source Source, key, what string) {
	*ps = append(*ps, &problem{source: source, key: key, what: what})
}

// maxProblems is how many problems an error names. More than that is the wrong file.
const maxProblems = 20

// err returns nil if there are no problems, else one error with a line for each: the file's in
// the order of its lines, then the environment's. The tokens do not appear in it.
func (ps problems) err(tokens ...Secret) error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b *problem) int {
		return cmp.Or(cmp.Compare(a.source.rank(), b.source.rank()), cmp.Compare(a.source.Line, b.source.Line))
	})
	var errs []error
	for _, p := range ps[:min(len(ps), maxProblems)] {
		errs = append(errs, errors.New(scrub(p.Error(), tokens...)))
	}
	if more := len(ps) - maxProblems; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more problems: correct these first, or check that it is the right file", more))
	}
	return errors.Join(errs...)
}

func (s Source) rank() int {
	return slices.Index([]SourceKind{FromFile, FromEnv, FromDefault}, s.Kind)
}

func fileSource(file string, line int) Source {
	return Source{Kind: FromFile, File: file, Line: line}
}

// scrub removes tokens from a text. No message is built with a value in it; this is the second
// lock, for a token that somebody pasted into the name of a file, a variable or a key.
func scrub(text string, tokens ...Secret) string {
	for _, token := range tokens {
		if value := token.Reveal(); len(value) >= 6 {
			text = strings.ReplaceAll(text, value, redacted)
		}
	}
	return regexp.MustCompile(`\bpul-[0-9A-Za-z]{8,}`).ReplaceAllString(text, redacted)
}

package vcs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Limits of filters.
const (
	maxPatterns = 200
	maxPattern  = 512
)

// Filter selects paths or names of tags. A pattern matches the whole path; patterns that begin with
// "!" exclude. Excludes always win, so that the order has no meaning. Without patterns that include,
// everything is included.
type Filter []string

// CheckFilter returns an error if a pattern is invalid, or cannot match any path of a repository.
func CheckFilter(patterns []string) error {
	if len(patterns) > maxPatterns {
		return fmt.Errorf("there are more than %d patterns", maxPatterns)
	}
	for _, p := range patterns {
		if err := checkPattern(strings.TrimPrefix(p, "!")); err != nil {
			return fmt.Errorf("pattern %q: %w", shorten(p), err)
		}
	}
	return nil
}

func checkPattern(glob string) error {
	switch {
	case glob == "":
		return errors.New("it is empty")
	case len(glob) > maxPattern:
		return fmt.Errorf("it is longer than %d bytes", maxPattern)
	case strings.HasPrefix(glob, "/"), strings.HasPrefix(glob, "./"):
		return fmt.Errorf("it must not begin with %q, because paths are relative to the root of the repository: write %q",
			glob[:strings.Index(glob, "/")+1], strings.TrimLeft(strings.TrimPrefix(glob, "."), "/"))
	case strings.HasSuffix(glob, "/"):
		return fmt.Errorf("it must not end with a slash, because it matches files: write %q", glob+"**")
	case !doublestar.ValidatePattern(glob):
		return errors.New("it is not a valid glob: check its brackets, braces and backslashes")
	}
	return nil
}

func shorten(text string) string {
	const limit = 80
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// test reports whether a name is included, without regard to the patterns that exclude, and whether
// one of these matches it.
func (f Filter) test(name string) (included, excluded bool) {
	all := true
	for _, p := range f {
		glob, excludes := strings.CutPrefix(p, "!")
		all = all && excludes
		switch {
		case !match(glob, name):
		case excludes:
			excluded = true
		default:
			included = true
		}
	}
	return included || all, excluded
}

func match(glob, name string) bool {
	ok, err := doublestar.Match(glob, name)
	return err == nil && ok
}

// Match reports whether the filter selects a name.
func (f Filter) Match(name string) bool {
	included, excluded := f.test(name)
	return included && !excluded
}

// Files are changed files.
type Files struct {
	Names []string
	// Known is not set if there can be others.
	Known bool
}

// selects reports whether a filter selects a change of files, or else the reason. Unknown files match.
func (f Filter) selects(files Files) (Reason, bool) {
	switch {
	case len(f) == 0 || !files.Known || slices.ContainsFunc(files.Names, f.Match):
		return "", true
	case len(files.Names) == 0:
		return ReasonEmpty, false
	}
	for _, name := range files.Names {
		if included, _ := f.test(name); included {
			return ReasonExcluded, false
		}
	}
	return ReasonNoPath, false
}

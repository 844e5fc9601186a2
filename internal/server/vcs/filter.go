package vcs

import (
	"context"
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
	// maxAlternatives is the number of patterns without braces for which one with braces may stand. Each
	// of them is tried, and their number doubles with each {a,b}.
	maxAlternatives = 256
	// The limits on comparing names with patterns, as characters of names times characters of patterns:
	// for the files of a change, for a tag, and for all new tags. A million takes up to 40 ms.
	maxFilesWork = 1 << 28
	maxTagWork   = 1 << 22
	maxTagsWork  = 1 << 26
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
	case alternatives(glob) > maxAlternatives:
		return fmt.Errorf("its braces stand for more than %d patterns: write several patterns", maxAlternatives)
	}
	return nil
}

// alternatives returns the number of patterns without braces for which a glob stands, or a number above
// [maxAlternatives].
func alternatives(glob string) int {
	total, depth, start, sum := 1, 0, 0, 0
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\':
			i++
		case c == '[': // braces and commas in a class are characters
			for i++; i < len(glob) && glob[i] != ']'; i++ {
				if glob[i] == '\\' {
					i++
				}
			}
		case c == '{':
			if depth++; depth == 1 {
				start, sum = i+1, 0
			}
		case c == ',' && depth == 1:
			sum, start = min(sum+alternatives(glob[start:i]), maxAlternatives+1), i+1
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				sum = min(sum+alternatives(glob[start:i]), maxAlternatives+1)
				total = min(total*sum, maxAlternatives+1)
			}
		}
	}
	return total
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
		case !match(glob, name, excludes):
		case excludes:
			excluded = true
		default:
			included = true
		}
	}
	return included || all, excluded
}

// match reports whether a glob matches a name. The settings can contain a glob that was accepted before
// braces had a limit. It includes every name, and excludes none, so that nothing is left out.
func match(glob, name string, excludes bool) bool {
	if alternatives(glob) > maxAlternatives {
		return !excludes
	}
	ok, err := doublestar.Match(glob, name)
	return err == nil && ok
}

// Match reports whether the filter selects a name.
func (f Filter) Match(name string) bool {
	included, excluded := f.test(name)
	return included && !excluded
}

// MatchTag reports whether the filter selects a tag. It selects one that takes too long to compare.
func (f Filter) MatchTag(tag string) bool { return f.work(tag) > maxTagWork || f.Match(tag) }

// CheapTags reports whether all tags can be compared with all filters in a short time.
func CheapTags(all []Filter, tags []string) bool {
	work := 0
	for _, f := range all {
		for _, tag := range tags {
			if work += f.work(tag); work > maxTagsWork {
				return false
			}
		}
	}
	return true
}

// work returns the time that comparing names takes, in the unit of the limits.
func (f Filter) work(names ...string) int {
	globs, all := 0, 0
	for _, p := range f {
		globs += len(p) * alternatives(p)
	}
	for _, name := range names {
		all += len(name) + 1
	}
	return globs * all
}

// Files are changed files.
type Files struct {
	Names []string
	// Known is not set if there can be others.
	Known bool

	selected map[string]selection // by filter; see [Files.Compared]
}

// selection is whether a filter selects a change of files, or else the reason.
type selection struct {
	reason Reason
	ok     bool
}

// Compared returns the files with the results of comparing them with the filters of stacks. A caller that
// must not wait, such as a transaction, prepares them with it. It ends early if ctx ends.
func (f Files) Compared(ctx context.Context, all []Watch) Files {
	f.selected = map[string]selection{}
	for _, w := range all {
		key := keyOf(w.Paths)
		if _, known := f.selected[key]; !known && ctx.Err() == nil {
			reason, ok := Filter(w.Paths).compare(f)
			f.selected[key] = selection{reason, ok}
		}
	}
	return f
}

func keyOf(f Filter) string { return strings.Join(f, "\x00") }

// selects reports whether a filter selects a change of files, or else the reason.
func (f Filter) selects(files Files) (Reason, bool) {
	if s, known := files.selected[keyOf(f)]; known {
		return s.reason, s.ok
	}
	return f.compare(files)
}

// compare is [Filter.selects] without the results of before. Unknown files match, and files that are too
// many for the patterns.
func (f Filter) compare(files Files) (Reason, bool) {
	switch {
	case len(f) == 0 || !files.Known || f.work(files.Names...) > maxFilesWork || slices.ContainsFunc(files.Names, f.Match):
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

package workflow

import (
	"regexp"
	"strings"
)

// AllowsRepository reports whether a list of patterns permits the named repository. The name is a
// [Repository.Name]. A nil list permits every repository. The empty name is permitted only by a nil
// list.
func AllowsRepository(patterns []string, name string) bool {
	if patterns == nil {
		return true
	}
	for _, pattern := range patterns {
		host, path, hasPath := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(pattern, "/"), ".git"), "/")
		pattern = strings.ToLower(host)
		if hasPath {
			pattern += "/" + path
		}
		if name != "" && MatchesPattern(pattern, name) {
			return true
		}
	}
	return false
}

// MatchesPattern reports whether the pattern matches the whole name. * matches any characters
// except slashes, and ** matches any characters.
func MatchesPattern(pattern, name string) bool {
	expr := regexp.QuoteMeta(pattern)
	expr = strings.ReplaceAll(expr, `\*\*`, `.*`)
	expr = strings.ReplaceAll(expr, `\*`, `[^/]*`)
	re, err := regexp.Compile(`^(?:` + expr + `)$`)
	return err == nil && re.MatchString(name)
}

package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PulumiVersionVariable is the environment variable in the settings that selects the version of pulumi;
// see [ParseVersionRange]. It is a variable because clients drop members of the settings that they do
// not know.
const PulumiVersionVariable = "PULUMI_DEPLOY_PULUMI_VERSION"

// Version is a released version of pulumi: major, minor and patch.
type Version [3]int

// ParseVersion parses a version in the form v3.276.0 or 3.276.0. Pre-releases are not versions.
func ParseVersion(text string) (Version, error) {
	v, parts, err := parseVersion(text)
	if err == nil && parts != len(v) {
		err = fmt.Errorf("%q is not a version of the form 3.276.0", text)
	}
	return v, err
}

// maxVersionPart limits the numbers of a version.
const maxVersionPart = 1_000_000

// parseVersion parses the first one to three parts of a version, and returns their number.
func parseVersion(text string) (v Version, parts int, err error) {
	words := strings.Split(strings.TrimPrefix(text, "v"), ".")
	if len(words) > len(v) {
		words = nil
	}
	for _, word := range words {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil || n > maxVersionPart || word != strconv.FormatUint(n, 10) {
			return v, 0, fmt.Errorf("%q is not a version of the form 3.276.0", text)
		}
		v[parts] = int(n)
		parts++
	}
	if parts == 0 {
		return v, 0, fmt.Errorf("%q is not a version of the form 3.276.0", text)
	}
	return v, parts, nil
}

// String returns the version in the form 3.276.0.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Compare returns a number below, equal to or above 0 if v is before, the same as or after other.
func (v Version) Compare(other Version) int { return slices.Compare(v[:], other[:]) }

// next returns the first version after all that share the first parts of v.
func (v Version) next(parts int) Version {
	var out Version
	copy(out[:parts], v[:parts])
	out[parts-1]++
	return out
}

// VersionRange selects versions of pulumi.
type VersionRange struct {
	text  string
	limit [][2]Version // each from the first, included, to the second, excluded
}

var (
	firstVersion = Version{}
	endOfTime    = Version{maxVersionPart + 2}
)

const (
	maxVersionRange = 128 // bytes
	operators       = "<>=^~"
)

// ParseVersionRange parses a version such as 3.276.0, the beginning of one such as 3.276 or 3, or a
// range: conditions that are separated by spaces or commas and all apply. A condition is a version or
// the beginning of one after >=, >, <=, <, =, ^ (the same major version) or ~ (the same minor version).
func ParseVersionRange(text string) (VersionRange, error) {
	r := VersionRange{text: text}
	if len(text) > maxVersionRange {
		return r, fmt.Errorf("a range of versions has at most %d characters", maxVersionRange)
	}
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' })
	for i, word := range words {
		version := strings.TrimLeft(word, operators)
		if version == "" && i+1 < len(words) && strings.Trim(words[i+1][:1], operators) != "" {
			words[i+1] = word + words[i+1] // as in ">= 3.270"
			continue
		}
		v, parts, err := parseVersion(version)
		if err != nil {
			return r, fmt.Errorf("%w, or a range such as >=3.270.0 <4", err)
		}
		limit := [2]Version{v, v.next(parts)}
		switch operator := strings.TrimSuffix(word, version); operator {
		case "", "=":
		case ">=":
			limit[1] = endOfTime
		case ">":
			limit = [2]Version{v.next(parts), endOfTime}
		case "<":
			limit = [2]Version{firstVersion, v}
		case "<=":
			limit[0] = firstVersion
		case "^":
			limit[1] = v.next(1)
		case "~":
			limit[1] = v.next(min(parts, 2))
		default:
			return r, fmt.Errorf("%q is not an operator on versions: use >=, >, <=, <, =, ^ or ~", operator)
		}
		r.limit = append(r.limit, limit)
	}
	if len(r.limit) == 0 {
		return r, fmt.Errorf("a range of versions names none: use a form like 3.276.0, 3.276 or >=3.270.0 <4")
	}
	return r, nil
}

// String returns the text from which the range was parsed.
func (r VersionRange) String() string { return r.text }

// Contains reports whether the range selects a version.
func (r VersionRange) Contains(v Version) bool {
	return !slices.ContainsFunc(r.limit, func(l [2]Version) bool { return v.Compare(l[0]) < 0 || v.Compare(l[1]) >= 0 })
}

// PulumiVersion returns the range of versions of pulumi that the settings request, or otherwise if they
// request none.
func (s *Settings) PulumiVersion(otherwise string) string {
	if s.OperationContext == nil {
		return otherwise
	}
	v := s.OperationContext.EnvironmentVariables[PulumiVersionVariable]
	text, _ := v.Value()
	return cmp.Or(strings.TrimSpace(text), otherwise)
}

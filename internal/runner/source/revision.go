package source

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// revision is what to check out: a commit, a ref, or the default branch if both are empty.
type revision struct {
	commit string // full or abbreviated hash, lower case
	ref    string // full name, refs/…
	branch string // the branch's short name if ref is a branch
	asked  string // as in the settings, for messages
}

// Git's commit hashes, from the shortest abbreviation to SHA-256.
var commitPattern = regexp.MustCompile(`^[0-9a-fA-F]{4,64}$`)

const branchPrefix = "refs/heads/"

// parseRevision prefers a commit to a branch.
func parseRevision(branch, commit string) (revision, error) {
	branch, commit = strings.TrimSpace(branch), strings.TrimSpace(commit)
	if commit != "" {
		if !commitPattern.MatchString(commit) {
			return revision{}, fmt.Errorf("%q is not a commit hash: use 4 to 64 hexadecimal digits, or set a branch instead", commit)
		}
		return revision{commit: strings.ToLower(commit), asked: commit}, nil
	}
	if branch == "" {
		return revision{}, nil
	}
	rev := revision{ref: branch, asked: branch}
	if !strings.HasPrefix(branch, "refs/") {
		rev.ref = branchPrefix + branch
	}
	if !validRef(rev.ref) || strings.HasPrefix(branch, "-") {
		return revision{}, fmt.Errorf("%q is not a valid name of a branch", branch)
	}
	if name, ok := strings.CutPrefix(rev.ref, branchPrefix); ok {
		// git refuses such branches, or takes them for the current one.
		if strings.HasPrefix(name, "-") || name == "HEAD" || name == "@" {
			return revision{}, fmt.Errorf("%q is not a valid name of a branch", branch)
		}
		rev.branch = name
	}
	return rev, nil
}

// isFullHash reports whether a server can be asked for the commit by its hash.
func (r revision) isFullHash() bool { return len(r.commit) == 40 || len(r.commit) == 64 }

// mark returns FETCH_HEAD's description of the ref, after its hash and a tab.
func (r revision) mark() string {
	for _, kind := range []struct{ prefix, noun string }{
		{branchPrefix, "branch "}, {"refs/tags/", "tag "}, {"refs/remotes/", "remote-tracking branch "},
	} {
		if name, ok := strings.CutPrefix(r.ref, kind.prefix); ok {
			return "\t" + kind.noun + "'" + name + "' of "
		}
	}
	if r.ref == "HEAD" {
		return "\t" // and the URL alone
	}
	return "\t'" + r.ref + "' of "
}

func (r revision) kind() string {
	switch {
	case r.commit != "":
		return "commit"
	case r.branch != "":
		return "branch"
	case strings.HasPrefix(r.ref, "refs/tags/"):
		return "tag"
	}
	return "ref"
}

// validRef applies git-check-ref-format, which excludes wildcards and the refspecs' colon.
func validRef(ref string) bool {
	if len(ref) > 1000 || !utf8.ValidString(ref) || strings.HasSuffix(ref, ".") || strings.Contains(ref, "..") || strings.Contains(ref, "@{") {
		return false
	}
	if strings.ContainsFunc(ref, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(`~^:?*[\`, r)
	}) {
		return false
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

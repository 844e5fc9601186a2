package source

import (
	"fmt"
	"regexp"
	"strings"

	"workflowagent/internal/workflow"
)

// revision is the revision to check out: a commit, a ref, or the default branch if both are empty.
type revision struct {
	commit string // full or abbreviated hash, lower case
	ref    string // full name, refs/…; with a commit, a ref that contains the commit, or ""
	branch string // the branch's short name if ref is a branch
	asked  string // the name in the settings, for messages
}

// commitPattern matches git's commit hashes, from the shortest abbreviation to SHA-256.
var commitPattern = regexp.MustCompile(`^[0-9a-fA-F]{4,64}$`)

const branchPrefix = "refs/heads/"

// parseRevision returns the revision that the settings select. commit takes precedence over branch,
// which then only helps to find the commit.
func parseRevision(branch, commit string) (revision, error) {
	branch, commit = strings.TrimSpace(branch), strings.TrimSpace(commit)
	if commit != "" {
		if !commitPattern.MatchString(commit) {
			return revision{}, fmt.Errorf("%q is not a commit hash: use 4 to 64 hexadecimal digits, or set a branch instead", commit)
		}
		rev := revision{commit: strings.ToLower(commit), asked: commit}
		if strings.HasPrefix(branch, "refs/") && workflow.CheckBranch(branch) == nil {
			rev.ref = branch
		}
		return rev, nil
	}
	if branch == "" {
		return revision{}, nil
	}
	rev := revision{ref: branch, asked: branch}
	if !strings.HasPrefix(branch, "refs/") {
		rev.ref = branchPrefix + branch
	}
	if workflow.CheckBranch(branch) != nil {
		return revision{}, fmt.Errorf("%q is not a valid branch name", branch)
	}
	if name, ok := strings.CutPrefix(rev.ref, branchPrefix); ok {
		rev.branch = name
	}
	return rev, nil
}

// isFullHash reports whether the commit is a full hash. Only such a commit can be requested from a
// server.
func (r revision) isFullHash() bool { return len(r.commit) == 40 || len(r.commit) == 64 }

// mark returns the text that describes the ref in FETCH_HEAD, after its hash and a tab.
func (r revision) mark() string {
	for _, kind := range []struct{ prefix, noun string }{
		{branchPrefix, "branch "}, {"refs/tags/", "tag "}, {"refs/remotes/", "remote-tracking branch "},
	} {
		if name, ok := strings.CutPrefix(r.ref, kind.prefix); ok {
			return "\t" + kind.noun + "'" + name + "' of "
		}
	}
	if r.ref == "HEAD" {
		return "\t" // followed only by the URL
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

// absent says that the repository does not contain the revision. Users also give the short names of
// tags.
func (r revision) absent() string {
	text := fmt.Sprintf("%s %q does not exist in the repository", r.kind(), r.asked)
	if r.branch != "" && !strings.HasPrefix(r.asked, "refs/") {
		text += fmt.Sprintf("; if it is a tag, give refs/tags/%s as the branch", r.asked)
	}
	return text
}

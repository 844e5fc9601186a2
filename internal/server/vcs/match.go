package vcs

import (
	"cmp"
	"slices"
	"strings"
)

// Prefixes of full refs.
const (
	BranchPrefix = "refs/heads/"
	TagPrefix    = "refs/tags/"
)

// zeros is the commit id that forges send for a ref that does not exist.
const zeros = "0000000000000000000000000000000000000000"

// Commit returns a commit id as events contain it: in lower case, and "" for the id of a ref that
// does not exist.
func Commit(id string) string {
	id = strings.ToLower(strings.TrimSpace(id))
	if strings.Trim(id, "0") == "" && len(id) >= len(zeros) {
		return ""
	}
	return id
}

// MatchRef returns what a push or a tag means for a stack. files are those of the push.
func MatchRef(e Event, w Watch, files Files, honorSkipCI bool) Decision {
	d := Decision{Watch: w, Commit: e.After, Ref: e.Ref}
	none := func(r Reason, detail string) Decision {
		d.Reason, d.Detail = r, detail
		return d
	}
	branch, isBranch := strings.CutPrefix(e.Ref, BranchPrefix)
	tag, isTag := strings.CutPrefix(e.Ref, TagPrefix)
	switch {
	case isTag && !w.DeployTags, isBranch && !w.DeployCommits, !isTag && !isBranch:
		return none(ReasonTriggerOff, "")
	case isBranch && (w.Branch == "" || branch != w.Branch):
		return none(ReasonOtherBranch, branch)
	case e.Deleted:
		return none(ReasonDeleted, "")
	case isTag && !Filter(w.TagFilters).MatchTag(tag):
		return none(ReasonTagFilter, tag)
	}
	if isBranch {
		if honorSkipCI && SkipsCI(e.Message) {
			return none(ReasonSkipCI, "")
		}
		if reason, ok := Filter(w.Paths).selects(files); !ok {
			return none(reason, "")
		}
	}
	d.Action, d.Reason = ActionUpdate, ReasonPushed
	if isTag {
		d.Reason = ReasonTagged
	}
	return d
}

// RefNeedsFiles reports whether the changed files of a push can matter to a stack.
func RefNeedsFiles(e Event, w Watch) bool {
	return len(w.Paths) > 0 && strings.HasPrefix(e.Ref, BranchPrefix) && MatchRef(e, w, Files{}, false).Action != ActionNone
}

// Policy is what an integration allows for pull requests.
type Policy struct {
	Forks       Approval
	Bots        Approval
	NoDrafts    bool // drafts run nothing
	HonorSkipCI bool
}

// Approval is whether the pull requests of a group may run, and when.
type Approval string

// The values of [Approval].
const (
	ApprovalNever    Approval = "none"
	ApprovalRequired Approval = "approve" // once a member has approved the commit
	ApprovalNotAsked Approval = "allow"   // not for forks
)

// PullContext is what the server knows about a pull request besides the forge's answer.
type PullContext struct {
	Approved string // the commit that a member has approved, or ""
	Files    Files  // of the whole pull request
	Message  string // of the head commit, or ""
	// Published is set if the pull request was a draft when the server last read it, and Rerun if an
	// account requested another run.
	Published, Rerun bool
}

// reason returns why a pull request is deployed.
func (c PullContext) reason(p Pull, policy Policy) Reason {
	switch {
	case c.Rerun:
		return ReasonRerun
	case c.Published && policy.NoDrafts && !p.Draft:
		return ReasonPublished
	default:
		return ReasonPull
	}
}

// MatchPull returns what a pull request means for a stack: at most one decision for each of the
// stack's triggers, or one with the reason that it means nothing.
func MatchPull(p Pull, w Watch, policy Policy, c PullContext) []Decision {
	d := Decision{Watch: w, Commit: p.Head, Pull: &p}
	with := func(a Action, r Reason, detail string) Decision {
		d := d
		d.Action, d.Reason, d.Detail = a, r, detail
		return d
	}
	if w.DeployPull != 0 {
		switch {
		case w.DeployPull != p.Number:
			return []Decision{with(ActionNone, ReasonOtherBranch, "")}
		case p.State != PullOpen:
			return []Decision{with(ActionNone, ReasonClosed, "")}
		}
		if r, detail := gate(p, policy, c); r != "" {
			return []Decision{with(ActionNone, r, detail)}
		}
		return []Decision{with(ActionUpdate, c.reason(p, policy), "")}
	}
	switch {
	case !w.PreviewPulls && !w.Template:
		return []Decision{with(ActionNone, ReasonTriggerOff, "")}
	case p.State != PullOpen:
		return []Decision{with(ActionSkip, ReasonClosed, "")}
	case w.Branch == "" || p.Base != w.Branch:
		return []Decision{with(ActionSkip, ReasonOtherBranch, p.Base)}
	}
	if r, detail := gate(p, policy, c); r != "" {
		return []Decision{with(ActionNone, r, detail)}
	}
	if r, ok := Filter(w.Paths).selects(c.Files); !ok {
		return []Decision{with(ActionNone, r, "")}
	}
	var out []Decision
	if w.PreviewPulls {
		out = append(out, with(ActionPreview, c.reason(p, policy), ""))
	}
	switch {
	case !w.Template:
	case len(w.Labels) > 0 && !slices.ContainsFunc(p.Labels, func(l string) bool { return slices.Contains(w.Labels, l) }):
		out = append(out, with(ActionNone, ReasonLabel, strings.Join(w.Labels, ", ")))
	default:
		out = append(out, with(ActionReview, c.reason(p, policy), ""))
	}
	return out
}

// Held returns the reason that nothing runs for the newest commit of a pull request, or "". approvable
// is set if a member can approve the commit.
func Held(p Pull, policy Policy, approved string) (r Reason, approvable bool) {
	r, commit := gate(p, policy, PullContext{Approved: approved})
	return r, commit != ""
}

// gate returns the reason that nothing may run for a pull request, or "". detail is the commit if a
// member can approve it.
func gate(p Pull, policy Policy, c PullContext) (r Reason, detail string) {
	approved := c.Approved != "" && c.Approved == p.Head
	switch {
	case p.Fork && policy.Forks != ApprovalRequired:
		return cmp.Or(p.Doubt, ReasonForkOff), ""
	case p.Fork && !approved:
		return cmp.Or(p.Doubt, ReasonFork), p.Head
	case p.Author.Bot && policy.Bots == ApprovalNever:
		return ReasonBot, ""
	case p.Author.Bot && policy.Bots == ApprovalRequired && !approved:
		return ReasonBot, p.Head
	case p.Draft && policy.NoDrafts:
		return ReasonDraft, ""
	case policy.HonorSkipCI && SkipsCI(c.Message):
		return ReasonSkipCI, ""
	}
	return "", ""
}

// PullNeedsFiles reports whether the changed files of a pull request can matter to a stack.
func PullNeedsFiles(p Pull, w Watch, policy Policy, c PullContext) bool {
	c.Files = Files{}
	return len(w.Paths) > 0 && slices.ContainsFunc(MatchPull(p, w, policy, c), func(d Decision) bool {
		return d.Action == ActionPreview || d.Action == ActionReview
	})
}

// ChooseTemplates keeps at most one review decision for each project: the one of the template whose
// stack is first by name. The others get [ReasonOtherTemplate].
func ChooseTemplates(decisions []Decision) []Decision {
	first := map[string]string{}
	for _, d := range decisions {
		if name, ok := first[d.Watch.Project]; d.Action == ActionReview && (!ok || d.Watch.Stack < name) {
			first[d.Watch.Project] = d.Watch.Stack
		}
	}
	out := slices.Clone(decisions)
	for i, d := range out {
		if name := first[d.Watch.Project]; d.Action == ActionReview && d.Watch.Stack != name {
			out[i].Action, out[i].Reason, out[i].Detail = ActionNone, ReasonOtherTemplate, name
		}
	}
	return out
}

// SkipsCI reports whether a commit's message requests that CI is skipped.
func SkipsCI(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc([]string{"[skip ci]", "[ci skip]", "[no ci]", "***no_ci***"}, func(mark string) bool {
		return strings.Contains(message, mark)
	})
}

package stack

import (
	"net/url"
	"strconv"
	"strings"

	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/workflow"
)

// failure returns why the last run failed: what could not be done, and the message.
func failure(c estate.Change) (headline, message string) {
	text := list.FailureText(c)
	if c.Cause != nil && c.Cause.Headline != text {
		return c.Cause.Headline, strings.TrimPrefix(text, c.Cause.Headline+": ")
	}
	return text, ""
}

// lastNumber names the last run of a stack.
func lastNumber(s estate.Stack) string {
	if s.LastDeployment > 0 {
		return "#" + strconv.FormatInt(s.LastDeployment, 10)
	}
	return s.LastKind + " " + strconv.FormatInt(s.LastVersion, 10)
}

// repository returns the name of the repository with the program and the address of its page, or "".
func (h head) repository() (name, href string) {
	if h.Set == nil {
		return h.Repository, ""
	}
	if g := h.Set.Git(); g != nil && g.RepoURL != "" {
		r, err := workflow.ParseRepository(g.RepoURL)
		if err != nil {
			return g.RepoURL, ""
		}
		full := r.Name()
		_, name, _ = strings.Cut(full, "/")
		if r.Scheme == "https" {
			return name, (&url.URL{Scheme: "https", Host: r.Host, Path: "/" + name}).String()
		}
		return full, ""
	}
	if t, ok := h.Set.Triggers(); ok {
		return t.Repository, ""
	}
	return h.Repository, ""
}

// folder returns the folder of the repository with the program, or "".
func (h head) folder() string {
	if h.Set == nil || h.Set.Git() == nil {
		return ""
	}
	return h.Set.Git().RepoDir
}

// deploysOn says which events deploy the stack, or "".
func (h head) deploysOn() string {
	if h.Set == nil {
		return ""
	}
	t, ok := h.Set.Triggers()
	if !ok {
		return ""
	}
	var on []string
	if t.DeployCommits && t.Branch != "" {
		on = append(on, "push to "+t.Branch)
	}
	if t.DeployTags {
		on = append(on, "tags")
	}
	if t.PreviewPullRequests {
		on = append(on, "pull requests (preview)")
	}
	if t.PullRequestTemplate {
		on = append(on, "pull requests (review stacks)")
	}
	return strings.Join(on, ", ")
}

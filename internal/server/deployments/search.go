package deployments

import (
	"strconv"
	"strings"

	"workflowagent/internal/server/store"
)

// Searched is the number of deployments that a page of [Service.Page] considers at most if it selects
// them by text. No index contains the texts, so the number bounds the time of a page.
const Searched = 2000

// maxText bounds the text of a search, in bytes.
const maxText = 200

// search is like [firstPage], but selects deployments by text.
func search(tx *store.Tx, f store.StageFilter, text string) (list []store.DeploymentJob, next store.StagePosition, err error) {
	page, matches := f.Limit-1, matcher(text)
	f.Limit = Searched
	n := 0
	found, next, err := tx.SearchStage(f, func(t store.StageText) bool {
		if n > page || !matches(t) {
			return false
		}
		n++
		return true
	})
	if err != nil {
		return nil, next, err
	}
	if n > page {
		found = found[:page]
		next = found[page-1]
	}
	list, err = tx.StageDeployments(found)
	return list, next, err
}

// matcher returns a function that reports whether a deployment has the number that the text is, or
// contains the text in the name of its stack, its requester, messages, branch or commit. It ignores the case of letters.
func matcher(text string) func(store.StageText) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	number, hash := strings.CutPrefix(text, "#")
	version, err := strconv.ParseInt(number, 10, 64)
	isNumber := err == nil
	in := func(value string) bool { return strings.Contains(strings.ToLower(value), text) }
	return func(t store.StageText) bool {
		switch {
		case isNumber && t.Version == version:
			return true
		case isNumber && hash:
			return false
		default:
			return in(t.Name) || in(t.Requester) || in(t.Message) || in(t.Branch) || in(t.Commit)
		}
	}
}

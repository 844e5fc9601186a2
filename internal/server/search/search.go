// Package search finds what a user names in an organization: stacks, deployments, resources, users, teams and agents. It
// returns only what the caller may read, and reads a bounded part of what is stored.
package search

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

// Service searches.
type Service struct{ db *store.DB }

// New returns a service on a database.
func New(db *store.DB) *Service { return &Service{db} }

// The bounds of a search. The rest of a text is ignored.
const (
	maxText   = 200
	maxWords  = 8
	leastWord = 2 // of words in messages and resources, in bytes

	shownStacks = 8
	shownRuns   = 6
	shownOthers = 5
	readStacks  = 30
	readMembers = 50
)

// memory is the approximate size of a search, in bytes.
const memory = 1 << 20

// Query is what a user looks for.
type Query struct {
	// Words are parts of names or messages, in lower case, and Number is that of a deployment; 0 for none.
	Words  []string
	Number int64
}

// Parse returns the query of a text. A number, with or without #, is that of a deployment, and a word as well.
func Parse(text string) Query {
	var q Query
	for word := range strings.FieldsSeq(strings.ToLower(strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), maxText)], "\x00", ""), ""))) {
		number, hash := strings.CutPrefix(word, "#")
		n, err := strconv.ParseInt(number, 10, 64)
		if err == nil && n > 0 && q.Number == 0 {
			q.Number = n
			if hash {
				continue
			}
		}
		if len(q.Words) < maxWords && word != "#" {
			q.Words = append(q.Words, word)
		}
	}
	return q
}

// names returns the words that are not the number.
func (q Query) names() []string {
	return slices.DeleteFunc(slices.Clone(q.Words), func(word string) bool { return q.Number > 0 && word == strconv.FormatInt(q.Number, 10) })
}

// Match reports whether a text contains all words of a query.
func (q Query) Match(text string) bool { return contains(text, q.Words) }

func contains(text string, words []string) bool {
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// Found is what a search finds, the newest first.
type Found struct {
	Stacks    []estate.Stack
	Runs      []store.FoundRun
	Resources []store.FoundResource
	Members   []store.Member
	Teams     []store.Team
	Agents    []store.FoundAgent
}

// Find searches in an organization. Without words and number, it finds the stacks that changed last.
func (s *Service) Find(ctx context.Context, p identity.Principal, orgID string, q Query) (Found, error) {
	if err := budget.Of(ctx).Take(ctx, memory); err != nil {
		return Found{}, err
	}
	f, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) (f Found, err error) {
		if len(q.Words) > 0 || q.Number == 0 {
			if f.Stacks, err = stacksOf(tx, p, orgID, q.Words, shownStacks); err != nil || len(q.Words) == 0 {
				return f, err
			}
		}
		if f.Runs, err = runs(tx, p, orgID, q); err != nil {
			return f, err
		}
		if f.Resources, err = resources(tx, p, orgID, q); err != nil || !p.CanReadOrg(orgID) || len(q.Words) == 0 {
			return f, err
		}
		longest := longest(q.Words)
		members, err := tx.Members(orgID, longest, "", readMembers)
		if err != nil {
			return f, err
		}
		f.Members = first(members, shownOthers, func(m store.Member) bool { return q.Match(m.Login + " " + m.Name) })
		teams, err := tx.Teams(orgID)
		if err != nil {
			return f, err
		}
		f.Teams = first(teams, shownOthers, func(t store.Team) bool { return q.Match(t.Name + " " + t.DisplayName) })
		if p.CanReadPools(orgID) {
			agents, err := tx.FindAgents(orgID, longest, readMembers)
			if err != nil {
				return f, err
			}
			f.Agents = first(agents, shownOthers, func(a store.FoundAgent) bool { return q.Match(a.Hostname + " " + a.Pool) })
		}
		return f, nil
	})
	return f, fault.While(err, "searching")
}

// Stacks finds the stacks with words in their names, the newest first.
func (s *Service) Stacks(ctx context.Context, p identity.Principal, orgID string, words []string, limit int) ([]estate.Stack, error) {
	list, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]estate.Stack, error) { return stacksOf(tx, p, orgID, words, limit) })
	return list, fault.While(err, "searching stacks")
}

// stacksOf returns stacks whose names contain all words: first those that have the name.
func stacksOf(tx *store.Tx, p identity.Principal, orgID string, words []string, limit int) ([]estate.Stack, error) {
	rows, err := tx.EstateRows(store.EstateFilter{OrgID: orgID, Reach: p.Reach(orgID), UserID: p.User.ID, Names: words, Sort: store.SortByChange, Limit: readStacks})
	list := make([]estate.Stack, len(rows))
	for i, r := range rows {
		list[i] = estate.Stack{EstateRow: r, State: estate.Of(r.Estate)}
	}
	slices.SortStableFunc(list, func(a, b estate.Stack) int { return cmp.Compare(place(a, words), place(b, words)) })
	return list[:min(len(list), limit)], err
}

// place is 0 for a stack that a word names, and 1 for others.
func place(st estate.Stack, words []string) int {
	name := strings.ToLower(st.Project + "/" + st.Name)
	if len(words) == 1 && (name == words[0] || strings.ToLower(st.Name) == words[0]) {
		return 0
	}
	return 1
}

// runs returns deployments with the number of a query, and those whose message contains its words.
func runs(tx *store.Tx, p identity.Principal, orgID string, q Query) (found []store.FoundRun, err error) {
	if q.Number > 0 {
		rows, err := tx.EstateRows(store.EstateFilter{
			OrgID: orgID, Reach: p.Reach(orgID), UserID: p.User.ID, Names: q.names(), Deployments: q.Number, Sort: store.SortByChange, Limit: shownRuns,
		})
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, r := range rows {
			ids = append(ids, r.StackID)
		}
		if found, err = tx.RunsByNumber(ids, q.Number); err != nil {
			return nil, err
		}
	}
	words := q.Words
	if !slices.ContainsFunc(words, func(word string) bool { return len(word) >= leastWord }) {
		return found, nil
	}
	recent, err := tx.RecentRuns(orgID, p.Reach(orgID))
	if err != nil {
		return nil, err
	}
	for _, r := range recent {
		// A message that has none of the words is not what the user looks for.
		if len(found) < shownRuns && contains(r.Message+" "+r.Project+"/"+r.Stack+" "+r.Requester, words) && some(r.Message, words) && !has(found, r) {
			found = append(found, r)
		}
	}
	return found, nil
}

func some(text string, words []string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(word string) bool { return len(word) >= leastWord && strings.Contains(text, word) })
}

func has(list []store.FoundRun, r store.FoundRun) bool {
	return slices.ContainsFunc(list, func(o store.FoundRun) bool { return o.StackID == r.StackID && o.Version == r.Version })
}

// searchedWords is the number of words, the longest first, with which the name of a resource can begin.
const searchedWords = 2

// resources returns resources with a part of the name that begins with one of the words, whose name, type and stack contain
// the others.
func resources(tx *store.Tx, p identity.Principal, orgID string, q Query) (found []store.FoundResource, err error) {
	words := slices.SortedStableFunc(slices.Values(q.Words), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, word := range words[:min(len(words), searchedWords)] {
		if len(word) < leastWord || len(found) == shownRuns {
			break
		}
		list, err := tx.FindResources(orgID, p.Reach(orgID), word)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			if len(found) < shownRuns && contains(r.Name+" "+r.Type+" "+r.Project+"/"+r.Stack, words) && !slices.Contains(found, r) {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

func longest(words []string) string {
	return slices.MaxFunc(words, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
}

// first returns the first elements that match.
func first[T any](list []T, limit int, match func(T) bool) []T {
	return slices.DeleteFunc(list, func(e T) bool {
		if !match(e) || limit == 0 {
			return true
		}
		limit--
		return false
	})
}

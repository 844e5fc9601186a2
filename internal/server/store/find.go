package store

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// FoundRun is a deployment that a search compares and shows.
type FoundRun struct {
	StackID, Project, Stack string
	Version                 int64
	Operation               workflow.Operation
	Status                  workflow.Status
	Reason                  workflow.Reason
	Drift                   bool
	Requester, Message      string
}

// The newest deployments of an organization among which [Tx.RecentRuns] selects, and the number of those that it returns.
// No index contains their messages, so the numbers bound the time of a search.
const (
	runWindow = 1000
	runsFound = 200
)

// RecentRuns returns the newest deployments of an organization that the caller sees and that have a message.
func (tx *Tx) RecentRuns(orgID string, reach Reach) ([]FoundRun, error) {
	from, where, args, err := tx.visibleEstate(orgID, reach)
	if err != nil || where == "" {
		return nil, err
	}
	return database.Collect(tx.Tx, readFoundRun, fmt.Sprintf(`SELECT r.stack_id, r.project, r.name, r.version, r.operation, j.status, j.reason, j.drift_found, r.requester, u.message FROM
		(SELECT d.id, d.created_at, d.stack_id, e.project, e.name, d.version, d.operation, d.requester FROM
			(SELECT id, stack_id, version, operation, requester, created_at FROM deployments WHERE org_id = $1 ORDER BY created_at DESC LIMIT %d) d
			JOIN %s AND e.stack_id = d.stack_id WHERE %s ORDER BY d.created_at DESC LIMIT %d) r
		JOIN jobs j ON j.deployment_id = r.id JOIN updates u ON u.deployment_id = r.id AND u.message <> '' ORDER BY r.created_at DESC`,
		runWindow, from, where, runsFound), args...)
}

func readFoundRun(scan database.Scan) (r FoundRun, err error) {
	err = scan(&r.StackID, &r.Project, &r.Stack, &r.Version, &r.Operation, &r.Status, &r.Reason, &r.Drift, &r.Requester, &r.Message)
	return r, err
}

// RunsByNumber returns the deployments of stacks with a number, in the order of the stacks.
func (tx *Tx) RunsByNumber(stackIDs []string, version int64) ([]FoundRun, error) {
	in, args := among("d.stack_id", stackIDs, []any{version})
	found, err := database.Collect(tx.Tx, readFoundRun, `SELECT d.stack_id, e.project, e.name, d.version, d.operation, j.status, j.reason, j.drift_found, d.requester,
		COALESCE((SELECT MAX(u.message) FROM updates u WHERE u.deployment_id = d.id), '')
		FROM deployments d JOIN estate e ON e.stack_id = d.stack_id JOIN jobs j ON j.deployment_id = d.id WHERE d.version = $1 AND `+in, args...)
	ordered := make([]FoundRun, 0, len(found))
	for _, id := range stackIDs {
		for _, r := range found {
			if r.StackID == id {
				ordered = append(ordered, r)
			}
		}
	}
	return ordered, err
}

// FoundResource is a resource that a search compares and shows.
type FoundResource struct{ Project, Stack, Type, Name string }

// resourceWindow bounds the resources among which [Tx.FindResources] selects.
const resourceWindow = 500

// FindResources returns resources in the states of an organization's stacks, of those that the caller sees, with a part of
// the name that begins with a text.
func (tx *Tx) FindResources(orgID string, reach Reach, text string) ([]FoundResource, error) {
	from, where, args, err := tx.visibleEstate(orgID, reach)
	if err != nil || where == "" || text == "" {
		return nil, err
	}
	arg := argumentsOf(&args)
	begin := []byte(cutOff(strings.ToLower(text), maxResourceWord))
	return database.Collect(tx.Tx, func(scan database.Scan) (r FoundResource, err error) {
		err = scan(&r.Project, &r.Stack, &r.Type, &r.Name)
		return r, err
	}, fmt.Sprintf(`SELECT e.project, e.name, r.kind, r.name FROM (SELECT word, stack_id, kind, name FROM resource_names
		WHERE org_id = $1 AND word >= %s AND word < %s ORDER BY word LIMIT %d) r JOIN %s AND e.stack_id = r.stack_id WHERE %s ORDER BY r.word`,
		arg(begin), arg(append(append([]byte{}, begin...), 0xff)), resourceWindow, from, where), args...)
}

// visibleEstate returns the clauses of a query for the rows of stacks that a caller sees: the tables after a JOIN with the
// beginning of its condition, and the rest of the conditions, which is "" if the caller sees none. The organization is $1.
func (tx *Tx) visibleEstate(orgID string, reach Reach) (from, where string, args []any, err error) {
	args = []any{orgID}
	all, err := tx.reachesAll(orgID, reach)
	if err != nil || all {
		return "estate e ON e.org_id = $1", "1 = 1", args, err
	}
	visible, args := reach.query(args...)
	return "(estate e JOIN live_stacks s ON s.id = e.stack_id JOIN organizations o ON o.id = s.org_id) ON e.org_id = $1", visible, args, nil
}

// FoundAgent is an agent that a search shows.
type FoundAgent struct{ PoolID, Pool, AgentID, Hostname string }

// FindAgents returns agents of an organization whose host contains a text, up to limit.
func (tx *Tx) FindAgents(orgID, text string, limit int) ([]FoundAgent, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (a FoundAgent, err error) {
		err = scan(&a.PoolID, &a.Pool, &a.AgentID, &a.Hostname)
		return a, err
	}, `SELECT a.pool_id, p.name, a.agent_id, a.hostname FROM pool_agents a JOIN agent_pools p ON p.id = a.pool_id
		WHERE p.org_id = $1 AND LOWER(a.hostname) LIKE $2 ESCAPE '\' ORDER BY a.last_seen_at DESC, a.agent_id`+fmt.Sprintf(" LIMIT %d", limit), orgID, containing(strings.ToLower(text)))
}

// ResourceName is a resource by which a stack is found.
type ResourceName struct{ Type, Name string }

// The bounds of the words by which the resources of a stack are found, in rows and bytes.
const (
	maxResourceRows = 6000
	maxResourceWord = 100
	maxResourceName = 300
	maxNameParts    = 4
)

// resourceWord is a row of a resource.
type resourceWord struct {
	word string
	ResourceName
}

// wordsOfResources returns the rows of the resources of a stack.
func wordsOfResources(list []ResourceName) map[resourceWord]bool {
	rows := map[resourceWord]bool{}
	for _, r := range list {
		r.Type, r.Name = cutOff(r.Type, maxResourceName), cutOff(r.Name, maxResourceName)
		for _, word := range nameParts(strings.ToLower(r.Name)) {
			if len(rows) == maxResourceRows {
				return rows
			}
			rows[resourceWord{cutOff(word, maxResourceWord), r}] = true
		}
	}
	return rows
}

// nameParts returns the ends of a name that begin with one of its first words.
func nameParts(name string) []string {
	var parts []string
	inside := false
	for i, c := range name {
		word := unicode.IsLetter(c) || unicode.IsDigit(c)
		if word && !inside && len(parts) < maxNameParts {
			parts = append(parts, name[i:])
		}
		inside = word
	}
	return parts
}

// SetResourceNames replaces the names by which the resources of a stack are found. It writes only what differs.
func (tx *Tx) SetResourceNames(stackID string, list []ResourceName) error {
	wanted := wordsOfResources(list)
	stored, err := database.Collect(tx.Tx, func(scan database.Scan) (r resourceWord, err error) {
		var word []byte
		err = scan(&word, &r.Type, &r.Name)
		r.word = string(word)
		return r, err
	}, "SELECT word, kind, name FROM resource_names WHERE stack_id = $1", stackID)
	if err != nil {
		return err
	}
	for _, r := range stored {
		if wanted[r] {
			delete(wanted, r)
			continue
		}
		if _, err := tx.Exec("DELETE FROM resource_names WHERE stack_id = $1 AND word = $2 AND kind = $3 AND name = $4", stackID, []byte(r.word), r.Type, r.Name); err != nil {
			return err
		}
	}
	for r := range wanted {
		if !utf8.ValidString(r.word) || strings.ContainsRune(r.Type+r.Name, 0) {
			continue
		}
		if _, err := tx.Exec(`INSERT INTO resource_names (org_id, word, stack_id, kind, name) SELECT org_id, $2, id, $3, $4 FROM stacks WHERE id = $1
			ON CONFLICT (org_id, word, stack_id, kind, name) DO NOTHING`, stackID, []byte(r.word), r.Type, r.Name); err != nil {
			return err
		}
	}
	return nil
}

package update

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/termtext"
)

// client is what the pulumi CLI says about its program and its machine. It says nothing that the client did not send.
type client struct {
	Config, Environment []pair
	values              map[string]string
}

type pair struct{ Name, Value string }

func clientOf(d stacks.Description) client {
	c := client{
		Environment: sortedPairs(d.Environment, func(v string) string { return v }),
		Config: sortedPairs(d.Config, func(v stacks.ConfigValue) string {
			if v.Secret {
				return diff.Secret
			}
			return v.String
		}),
		values: map[string]string{},
	}
	for _, p := range c.Environment {
		c.values[p.Name] = p.Value
	}
	return c
}

// sortedPairs returns the members of a JSON object by name, or nil if raw is none.
func sortedPairs[V any](raw json.RawMessage, text func(V) string) []pair {
	var m map[string]V
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	out := make([]pair, 0, len(m))
	for k, v := range m {
		out = append(out, pair{k, text(v)})
	}
	slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// value returns a value of the environment in one line.
func (c client) value(name string) string { return termtext.OneLine(c.values[name], 200) }

// version is the version of pulumi.
func (c client) version() string { return c.value("pulumi.version") }

// host describes where pulumi runs: a CI system, or else the system of the machine. Clients do not send its name.
func (c client) host() string {
	if ci := c.value("ci.system"); ci != "" {
		if build := cmp.Or(c.value("ci.build.number"), c.value("ci.build.id")); build != "" {
			return ci + ", build " + build
		}
		return ci
	}
	return strings.TrimSpace(c.value("pulumi.os") + " " + c.value("pulumi.arch"))
}

// commit is the commit of the program, and dirty reports that its directory had changes that no commit contains.
func (c client) commit() string { return c.value("git.head") }
func (c client) dirty() bool    { return c.values["git.dirty"] == "true" }

// branch is the branch of the program.
func (c client) branch() string {
	return strings.TrimPrefix(c.value("git.headName"), "refs/heads/")
}

// author is the author of the commit.
func (c client) author() string {
	return cmp.Or(c.value("git.author"), c.value("git.committer"))
}

package identity

import (
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/workflow"
)

// Ability is a permission on a stack. Abilities are bits. A check for several abilities succeeds if
// the caller has any of them.
type Ability uint16

// docs/permissions.md lists the abilities that each route requires.
const (
	StateRead     Ability = 1 << iota // read the stack, its state, updates and deployments
	Outputs                           // read only the stack's outputs, including secret outputs
	Decrypt                           // decrypt the stack's secrets
	DecryptConfig                     // read the stack's names and its stored configuration, and decrypt values of the configuration
	Encrypt                           // encrypt secrets for the stack
	Preview                           // run previews
	Write                             // run updates, import states, change tags
	DeleteStack                       // remove the stack if it is empty
	Operate                           // run and cancel deployments, change settings and stored configuration; in no scope
	Manage                            // rename the stack, remove it with its resources, and grant permissions; in no scope

	everything = Manage<<1 - 1
)

var abilityNames = []struct {
	ability Ability
	name    string
}{
	{StateRead, "state-read"},
	{Outputs, "outputs"},
	{Decrypt, "decrypt"},
	{DecryptConfig, "decrypt-config"},
	{Encrypt, "encrypt"},
	{Preview, "preview"},
	{Write, "write"},
	{DeleteStack, "delete-stack"},
}

// String returns the names of the abilities in a.
func (a Ability) String() string {
	var names []string
	for _, n := range abilityNames {
		if a&n.ability != 0 {
			names = append(names, n.name)
		}
	}
	if a&Operate != 0 {
		names = append(names, "operate")
	}
	if a&Manage != 0 {
		names = append(names, "manage")
	}
	return strings.Join(names, " or ")
}

// Scope holds a token's abilities by stack id.
type Scope map[string]Ability

// OtherStacks is the key in a [Scope] for every stack of the token's organization that the token's
// user may read at the time of use.
const OtherStacks = "*"

// rolePrefix begins the key in a [Scope] that names the role to which a job is limited.
const rolePrefix = "@"

// As returns a copy of a job's scope that is limited to a role, if role is not "". With the token,
// the user has at most that role.
func (s Scope) As(role string) Scope {
	s = maps.Clone(s)
	if role != "" {
		s[rolePrefix+role] = Outputs
	}
	return s
}

// role returns the role to which a scope is limited, or "".
func (s Scope) role() string {
	for key := range s {
		if role, ok := strings.CutPrefix(key, rolePrefix); ok {
			return role
		}
	}
	return ""
}

// JobScope returns the scope for a deployment's pulumi process. Only a deployment with a requester
// may read other stacks' outputs, and open environments.
func JobScope(stackID string, op workflow.Operation, opts workflow.Options, requester bool) Scope {
	own := StateRead | Decrypt | Encrypt | Preview
	looks := op == workflow.OperationPreview || op == workflow.OperationDetectDrift && !opts.RemediateIfDriftDetected
	if !looks {
		own |= DecryptConfig | Write
	}
	if op == workflow.OperationDestroy && opts.DeleteAfterDestroy {
		own |= DeleteStack
	}
	scope := Scope{stackID: own}
	if requester {
		scope[OtherStacks], scope[Environments] = Outputs, Outputs
	}
	return scope
}

// EvaluationScope returns the scope of a policy evaluation's job, which reads states of its stack.
func EvaluationScope(stackID string) Scope { return Scope{stackID: StateRead} }

// WithConfiguration returns a copy of a job's scope that contains the environment that the stack manages. own is set if the
// job runs exactly what the settings of the stack name, and not another branch of its repository.
func (s Scope) WithConfiguration(own bool) Scope {
	s = maps.Clone(s)
	s[Configuration] = Outputs
	if own {
		s[Configuration] |= Write
	}
	return s
}

// WithTemplate returns a copy of a review stack's scope that can copy the configuration of its
// template.
func (s Scope) WithTemplate(stackID string) Scope {
	s = maps.Clone(s)
	s[stackID] |= DecryptConfig
	return s
}

// String returns the stored form of a scope: stack:ability pairs, separated by spaces.
func (s Scope) String() string {
	var pairs []string
	for stack, abilities := range s {
		for _, n := range abilityNames {
			if abilities&n.ability != 0 {
				pairs = append(pairs, stack+":"+n.name)
			}
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, " ")
}

// ParseScope parses the stored form of a scope. It ignores unknown parts.
func ParseScope(text string) Scope {
	scope := Scope{}
	for pair := range strings.FieldsSeq(text) {
		stack, name, _ := strings.Cut(pair, ":")
		for _, n := range abilityNames {
			if n.name == name {
				scope[stack] |= n.ability
			}
		}
	}
	return scope
}

package identity

import (
	"slices"
	"strings"

	"workflowagent/internal/workflow"
)

// Ability is something that a caller may do with a stack. The values are bits:
// a need that names several is met by each of them.
type Ability uint16

// The abilities. docs/security.md says which route needs which.
const (
	StateRead     Ability = 1 << iota // see the stack, its state, updates and deployments
	Outputs                           // read the stack's outputs, also secret ones, and nothing else
	Decrypt                           // decrypt secrets of the stack
	DecryptConfig                     // read the stored configuration, which names the key of secrets
	Encrypt                           // encrypt secrets for the stack
	Preview                           // run updates that change nothing
	Write                             // run updates, import states, change tags
	DeleteStack                       // remove the stack when it is empty
	Manage                            // decide about the stack as a whole; no scope holds it

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

// String returns the names of the abilities of which one is needed.
func (a Ability) String() string {
	var names []string
	for _, n := range abilityNames {
		if a&n.ability != 0 {
			names = append(names, n.name)
		}
	}
	if a&Manage != 0 {
		names = append(names, "manage")
	}
	return strings.Join(names, " or ")
}

// Scope is what a token may do, by stack id.
type Scope map[string]Ability

// OtherStacks in a [Scope] stands for every stack of the token's organization
// that the token's user may read when the token is used.
const OtherStacks = "*"

// JobScope returns what the pulumi process of a deployment may do. Only one
// with a requester reads the outputs of other stacks.
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
		scope[OtherStacks] = Outputs
	}
	return scope
}

// String returns the form in which a scope is stored: pairs of a stack and an
// ability, separated by spaces.
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

// ParseScope reads the stored form. What it does not know grants nothing.
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

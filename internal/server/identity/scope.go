package identity

import (
	"slices"
	"strings"

	"workflowagent/internal/workflow"
)

// Ability is a permission on a stack. Values are bits; any one of several needed bits suffices.
type Ability uint16

// docs/security.md lists which route needs which ability.
const (
	StateRead     Ability = 1 << iota // see the stack, its state, updates and deployments
	Outputs                           // read the stack's outputs, including secret ones, and nothing else
	Decrypt                           // decrypt secrets of the stack
	DecryptConfig                     // read the stored configuration, which names the key of secrets
	Encrypt                           // encrypt secrets for the stack
	Preview                           // run updates that change nothing
	Write                             // run updates, import states, change tags
	DeleteStack                       // remove the stack when it is empty
	Manage                            // administer the whole stack; no scope holds it

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

// String returns the names of the abilities, of which one is needed.
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

// Scope holds a token's abilities by stack id.
type Scope map[string]Ability

// OtherStacks in a [Scope] stands for every stack of the token's organization that its user may
// read at the time of use.
const OtherStacks = "*"

// JobScope returns the scope of a deployment's pulumi process. Only a deployment with a requester
// may read the outputs of other stacks.
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

// String returns the stored form of a scope: space-separated pairs of a stack and an ability.
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

// ParseScope parses the stored form. Unknown parts grant nothing.
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

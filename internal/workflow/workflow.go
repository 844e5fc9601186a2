// Package workflow is the pure domain of the product: what a workflow is, which
// states it passes through, what a job is made of and how deployment settings
// merge. It imports nothing else of ours, does no I/O and reads no clock.
package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// Type is a kind of work that an agent can be asked to do.
type Type string

// The workflow types of the public product. Only deployments are built; the
// others are named so that a configuration or a server that mentions them is
// understood and refused for the right reason.
const (
	TypeDeployment       Type = "deployment"
	TypeInsightsScan     Type = "insights_scan"
	TypePolicyEvaluation Type = "policy_evaluation"
)

// Types lists every known workflow type in the order the product documents it.
func Types() []Type {
	return []Type{TypeDeployment, TypeInsightsScan, TypePolicyEvaluation}
}

// Operation is what a deployment does to its stack.
type Operation string

// The operations of the public API.
const (
	OperationUpdate         Operation = "update"
	OperationPreview        Operation = "preview"
	OperationRefresh        Operation = "refresh"
	OperationDestroy        Operation = "destroy"
	OperationDetectDrift    Operation = "detect-drift"
	OperationRemediateDrift Operation = "remediate-drift"
)

// Operations lists every operation in the order the API documents it.
func Operations() []Operation {
	return []Operation{
		OperationUpdate, OperationPreview, OperationRefresh, OperationDestroy,
		OperationDetectDrift, OperationRemediateDrift,
	}
}

// ParseOperation returns the operation named s, or an error that lists the
// possible ones.
func ParseOperation(s string) (Operation, error) {
	if op := Operation(s); slices.Contains(Operations(), op) {
		return op, nil
	}
	var names []string
	for _, op := range Operations() {
		names = append(names, string(op))
	}
	return "", fmt.Errorf("unknown operation %q: use one of %s", s, strings.Join(names, ", "))
}

// Changes reports whether the operation may alter real infrastructure, which
// decides how patient a cancellation is.
func (o Operation) Changes() bool {
	return o != OperationPreview && o != OperationDetectDrift
}

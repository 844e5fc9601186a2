// Package workflow contains the domain types and rules of the product: workflows, job definitions,
// and the merging of settings. It imports no other package of the product, performs no I/O and
// reads no clock.
package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// Type is a kind of work.
type Type string

// The workflow types of the public product. Scans of Insights are not implemented: their type exists so that a
// configuration or server that names it is rejected with the right reason.
const (
	TypeDeployment       Type = "deployment"
	TypeInsightsScan     Type = "insights_scan"
	TypePolicyEvaluation Type = "policy_evaluation"
)

// Types returns the workflow types in the documented order.
func Types() []Type {
	return []Type{TypeDeployment, TypeInsightsScan, TypePolicyEvaluation}
}

// Runnable returns those of the given workflow types that this version can run.
func Runnable(types []Type) []Type {
	return slices.DeleteFunc(slices.Clone(types), func(t Type) bool { return t != TypeDeployment && t != TypePolicyEvaluation })
}

// Operation is the action of a deployment on its stack.
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

// Operations returns the operations in the documented order.
func Operations() []Operation {
	return []Operation{
		OperationUpdate, OperationPreview, OperationRefresh, OperationDestroy,
		OperationDetectDrift, OperationRemediateDrift,
	}
}

// ParseOperation returns the operation named s, or an error that lists the valid ones.
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

// Changes reports whether o can change infrastructure, which determines the grace period of a
// cancellation.
func (o Operation) Changes() bool {
	return o != OperationPreview && o != OperationDetectDrift
}

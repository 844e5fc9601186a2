package render

import (
	"fmt"
	"strings"

	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/stacks/changes"
)

// MaxViolations is the number of violations of policies that a comment shows per stack.
const MaxViolations = 50

// Policy is what the policy packs of an update found.
type Policy struct {
	// Violations are the first ones, those that stop the update first.
	Violations []Violation
	// The numbers of all violations. Exceptions apply to the last ones only.
	Mandatory, Advisory, Excepted int64
	// Missing are the required packs without which the update ended.
	Missing []string
	// Unknown are the packs and policies that had no result in a preview.
	Unknown []string
}

// Violation is a violation of a policy.
type Violation struct {
	Pack, Policy, Level, URN, Message string
	Exceptions                        []string // names of those that apply
}

func (p Policy) total() int64 { return p.Mandatory + p.Advisory + p.Excepted }

// quiet reports whether nothing was found, and nothing is missing.
func (p Policy) quiet() bool { return p.total() == 0 && len(p.Missing) == 0 }

// words returns the numbers of violations, or "". They do not decide the state of a report: only the result of the
// operation does.
func (p Policy) words() string {
	parts := findings.Numbers(p.Mandatory, p.Advisory, p.Excepted)
	if len(p.Missing) > 0 {
		parts = append(parts, "not evaluated: "+strings.Join(p.Missing, ", "))
	}
	return strings.Join(parts, ", ")
}

// policy returns the sections about policies.
func (w *writer) policy(p Policy) []section {
	var out []section
	if len(p.Missing) > 0 {
		s := section{title: "Not evaluated"}
		for _, pack := range p.Missing {
			s.lines = append(s.lines, w.line("the operation ended without the required policy pack "+pack))
		}
		out = append(out, s)
	}
	if p.total() > 0 {
		s := section{title: "Policy violations"}
		for _, v := range p.Violations[:min(len(p.Violations), MaxViolations)] {
			s.lines = append(s.lines, w.violation(v))
		}
		s.omitted = int(p.total()) - len(s.lines)
		out = append(out, s)
	}
	if len(p.Unknown) > 0 {
		s := section{title: "Policies without a result in this preview, which an update may violate"}
		for _, name := range p.Unknown {
			s.lines = append(s.lines, w.line(name))
		}
		out = append(out, s)
	}
	return out
}

func (w *writer) violation(v Violation) string {
	level := v.Level
	if len(v.Exceptions) > 0 {
		level += " (" + strings.Join(v.Exceptions, ", ") + ")"
	}
	resource := v.URN
	if kind, name := changes.Parts(v.URN); kind != "" {
		resource = kind + " " + name
	}
	return w.cut(fmt.Sprintf("%s: %s %s: %s: %s", level, v.Pack, v.Policy, resource, v.Message), maxMessage)
}

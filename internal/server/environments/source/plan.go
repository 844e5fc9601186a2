package source

import (
	"context"
	"fmt"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// Options say what a plan may do.
type Options struct {
	// Plaintext permits plaintext secrets, which are encrypted. Otherwise they are a problem.
	Plaintext bool
	// Deletes reports whether an environment that the folder does not contain is deleted; nil means none.
	Deletes func(store.Environment) bool
	// Closed makes imports of environments that are not in the folder unknown. Then no definition of the server is part
	// of an error.
	Closed bool
	// Differences adds the differences of definitions.
	Differences bool
	// MaxChecks bounds the number of definitions that are evaluated; 0 means no bound.
	MaxChecks int
}

// Service makes plans and applies them. Its methods may be called concurrently.
type Service struct{ envs *environments.Service }

// New returns a service.
func New(envs *environments.Service) *Service { return &Service{envs} }

// page is the number of environments that are listed at once.
const page = 1000

// Plan returns what a folder would change in an organization. The caller needs the permissions for it.
func (s *Service) Plan(ctx context.Context, p identity.Principal, org store.Organization, files []File, o Options) (Plan, error) {
	list, ignored, err := read(files)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Steps: []Step{}, Ignored: ignored}
	in := environments.Folder{Definitions: map[environments.Reference]string{}, Closed: o.Closed}
	for _, d := range list {
		in.Definitions[d.Reference] = d.Definition
	}
	stored, err := s.stored(ctx, p, org)
	if err != nil {
		return Plan{}, err
	}
	checks := 0
	for _, d := range list {
		step := Step{Environment: d.String(), Path: d.Path, Action: Create, definition: d.Definition}
		if _, exists := stored[d.Reference]; exists {
			delete(stored, d.Reference)
			if step.found, err = s.envs.Revision(ctx, p, store.WriteEnvironment, org.Name, d.Reference); err != nil {
				return Plan{}, err
			}
			step.Action = Change
		} else {
			step.found.Environment = store.Environment{ID: identity.NewID(), OrgID: org.ID, OrgName: org.Name, Project: d.Project, Name: d.Name}
		}
		if step.Action == Change && step.found.Revision.Definition == d.Definition {
			step.Action = Keep
		} else if checks++; o.MaxChecks > 0 && checks > o.MaxChecks {
			step.Problems = []string{fmt.Sprintf("the folder contains more than %d definitions to check; divide the change", o.MaxChecks)}
			plan.Steps = append(plan.Steps, step)
			return plan, nil
		} else if err := s.check(ctx, p, &step, in, o); err != nil {
			return Plan{}, err
		}
		plan.Steps = append(plan.Steps, step)
	}
	for _, r := range sorted(stored) {
		e := stored[r]
		if o.Deletes == nil || e.Managed || !o.Deletes(e.Environment) { // the environment of a stack is deleted with the stack
			plan.Others = append(plan.Others, r.String())
			continue
		}
		step := Step{Environment: r.String(), Action: Delete, found: environments.Found{Environment: e.Environment}}
		if e.Protected {
			step.Problems = []string{"the environment is protected from deletion, and the folder does not contain it"}
		}
		plan.Steps = append(plan.Steps, step)
	}
	return plan, nil
}

// stored returns the environments of an organization.
func (s *Service) stored(ctx context.Context, p identity.Principal, org store.Organization) (map[environments.Reference]environments.Item, error) {
	all := map[environments.Reference]environments.Item{}
	after := store.EnvironmentName{}
	for {
		list, more, err := s.envs.List(ctx, p, org.ID, after, page, false)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			after = store.EnvironmentName{Org: e.OrgName, Project: e.Project, Name: e.Name}
			all[environments.Reference{Project: e.Project, Name: e.Name}] = e
		}
		if !more || len(list) == 0 {
			return all, nil
		}
	}
}

// check evaluates the definition of a step.
func (s *Service) check(ctx context.Context, p identity.Principal, step *Step, in environments.Folder, o Options) error {
	share := budget.Of(ctx)
	held := share.Held()
	defer func() { share.Give(share.Held() - held) }() // what the evaluation read
	checked, err := s.envs.CheckIn(ctx, p, step.found.Environment, step.definition, in)
	if refused(err) {
		step.Problems = []string{termtext.OneLine(messageOf(err), maxProblem)}
		return nil
	}
	if err != nil {
		return err
	}
	step.Problems = problems(checked.Diagnostics)
	if checked.Plaintext && !o.Plaintext && len(step.Problems) == 0 {
		step.Problems = []string{"it contains a secret in plain text: set the secret with pulumi env set --secret, and copy the definition that pulumi env get prints"}
	}
	if len(step.Problems) > 0 {
		return nil
	}
	for _, r := range checked.Outside {
		step.Unchecked = append(step.Unchecked, r.String())
	}
	step.imports = checked.Imports
	if step.Action == Change {
		same := checked.Definition == step.found.Revision.Definition
		if !same && checked.Plaintext {
			if same, err = s.envs.Same(ctx, step.found.Environment, step.found.Revision.Definition, checked.Definition); err != nil {
				return err
			}
		}
		if same {
			step.Action = Keep
			return nil
		}
	}
	if o.Differences {
		step.Difference = differing(step.found.Revision.Definition, checked.Definition)
	}
	return nil
}

// refused reports whether an error is about the definition.
func refused(err error) bool {
	switch fault.KindOf(err) {
	case fault.KindInvalid, fault.KindTooLarge:
		return true
	}
	return false
}

const (
	maxProblems = 10
	maxProblem  = 300
)

// problems returns the errors among diagnostics.
func problems(all wire.Diagnostics) (list []string) {
	for _, d := range all {
		if d.Severity == wire.Warning {
			continue
		}
		if len(list) == maxProblems {
			return append(list, "…")
		}
		text := termtext.OneLine(d.Summary, maxProblem)
		if d.Range != nil && d.Range.Begin.Line > 0 {
			text = fmt.Sprintf("line %d: %s", d.Range.Begin.Line, text)
		}
		list = append(list, text)
	}
	return list
}

package source

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Apply applies a plan that has not failed: first what others import. It returns an error if an environment has changed since
// the plan was made; then the steps before it are done. done is called after each step that created or changed an environment,
// and for each one that is kept, unless it is nil.
func (s *Service) Apply(ctx context.Context, p identity.Principal, org store.Organization, plan Plan, done func(e store.Environment, step Step) error) error {
	if plan.Failed() {
		return fault.Invalid("the plan has problems, so nothing was changed")
	}
	if done == nil {
		done = func(store.Environment, Step) error { return nil }
	}
	for _, step := range inOrder(plan.Steps) {
		e := step.found.Environment
		var err error
		switch step.Action {
		case Keep:
			err = done(e, step)
		case Delete:
			err = s.envs.Delete(ctx, p, e)
		case Create, Change:
			if e, err = s.apply(ctx, p, org, step); err == nil {
				err = done(e, step)
			}
		}
		if err != nil {
			return fault.During(err, "changing environment "+step.Environment)
		}
	}
	return nil
}

// apply creates or changes an environment.
func (s *Service) apply(ctx context.Context, p identity.Principal, org store.Organization, step Step) (store.Environment, error) {
	e := step.found.Environment
	if step.Action == Create {
		var err error
		if e, err = s.envs.Create(ctx, p, org, e.Project, e.Name); err != nil {
			return e, err
		}
	}
	updated, err := s.envs.Update(ctx, p, e, step.definition, environments.ETag(e.ID, e.LastNumber))
	if diagnosed, ok := errors.AsType[*environments.DiagnosticsError](err); ok {
		// The check before has passed, so what it imports has changed since.
		return e, fault.Invalid("%s", messageOf(diagnosed))
	}
	return updated.Environment, err
}

// messageOf returns the message of an error for users, without what the server was doing.
func messageOf(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Message
	}
	return err.Error()
}

// inOrder returns steps in an order in which each follows those of the environments that it imports. Deletions are last.
func inOrder(steps []Step) []Step {
	at := map[string]int{}
	for i, s := range steps {
		at[s.Environment] = i
	}
	visited := make([]bool, len(steps))
	out := make([]Step, 0, len(steps))
	var visit func(i int)
	visit = func(i int) {
		if visited[i] {
			return
		}
		visited[i] = true
		for _, r := range steps[i].imports {
			if n, ok := at[environments.Reference{Project: r.Project, Name: r.Name}.String()]; ok {
				visit(n)
			}
		}
		out = append(out, steps[i])
	}
	for _, last := range []bool{false, true} {
		for i, s := range steps {
			if (s.Action == Delete) == last {
				visit(i)
			}
		}
	}
	return out
}

func sorted[V any](all map[environments.Reference]V) []environments.Reference {
	return slices.SortedFunc(maps.Keys(all), func(a, b environments.Reference) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Name, b.Name))
	})
}

package opening

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

const (
	// maxVariables limits the variables of a job from environments in bytes, because Linux limits those of a process.
	maxVariables = 1 << 20
	// maxProblems is the number of errors in [protocol.JobEnvironments].
	maxProblems = 5
)

// Variables opens environments for the job of a deployment, and returns what the values environmentVariables and files give
// to its commands. names are in the form of [environments.ParseReference]; of two environments with a variable, the later
// one wins. What is wrong with an environment, or with the rights on it, is a problem and no error.
func (s *Service) Variables(ctx context.Context, p identity.Principal, names []string) (protocol.JobEnvironments, error) {
	definition, err := json.Marshal(map[string][]string{"imports": names}) // which is YAML, too
	if err != nil {
		return protocol.JobEnvironments{}, fault.Invalid("the names of the environments cannot be used: %s", oneLine(err.Error()))
	}
	return s.variablesOf(ctx, s.hostFor(p, Root{Org: p.Org, Definition: string(definition)}, store.OpenEnvironment))
}

func (s *Service) variablesOf(ctx context.Context, h *host) (protocol.JobEnvironments, error) {
	out, err := s.variables(ctx, h)
	if diagnostics, ok := errors.AsType[*environments.DiagnosticsError](err); ok {
		return protocol.JobEnvironments{Problem: problemOf(diagnostics.Diagnostics)}, nil
	}
	answer, err := concerns(err)
	if err != nil || answer.Error != "" {
		out = protocol.JobEnvironments{Problem: oneLine(answer.Error)}
	}
	return out, err
}

func (s *Service) variables(ctx context.Context, h *host) (out protocol.JobEnvironments, err error) {
	result, err := s.run(ctx, h, h.request(wire.Open))
	if err != nil {
		return out, err
	}
	values := wire.Values{}
	if result.Environment != nil {
		for _, name := range []string{"environmentVariables", "files"} {
			values[name] = result.Environment.Properties[name]
		}
	}
	if out.Variables, err = textsOf(values["environmentVariables"], maxVariables, "environmentVariables"); err != nil {
		return out, err
	}
	if out.Files, err = textsOf(values["files"], maxValues, "files"); err != nil {
		return out, err
	}
	// For the texts and the response.
	if err := budget.Of(ctx).Take(ctx, 4*int64(sizeOf(out.Variables)+sizeOf(out.Files))); err != nil {
		return out, err
	}
	if err := s.account(ctx, h, values, nil); err != nil {
		return out, err
	}
	for _, o := range h.opened() {
		out.Opened = append(out.Opened, name(&o.Environment)+", "+o.version())
	}
	return out, nil
}

// textsOf returns the members of an object that are no lists and no objects, by name, as clients pass them to commands.
func textsOf(v wire.Value, limit int, member string) ([]protocol.JobEnvironment, error) {
	members, _ := v.Value.(map[string]wire.Value)
	var out []protocol.JobEnvironment
	for _, name := range slices.Sorted(maps.Keys(members)) {
		text := ""
		switch content := members[name].Value.(type) {
		case nil:
		case bool:
			text = fmt.Sprint(content)
		case json.Number:
			text = content.String()
		case string:
			text = content
		default:
			continue
		}
		if members[name].Unknown {
			return nil, fault.Invalid("the value %s of %s is not known", oneLine(name), member)
		}
		out = append(out, protocol.JobEnvironment{Name: name, Value: text, Secret: v.Secret || members[name].Secret})
	}
	if size := sizeOf(out); size > limit {
		return nil, fault.Invalid("%s of the environments have %s in all, and a job takes at most %s", member, words.Bytes(int64(size)), words.Bytes(int64(limit)))
	}
	return out, nil
}

func sizeOf(list []protocol.JobEnvironment) (size int) {
	for _, v := range list {
		size += len(v.Name) + len(v.Value)
	}
	return size
}

// problemOf returns the errors among diagnostics as one line.
func problemOf(list wire.Diagnostics) string {
	var texts []string
	for _, d := range list {
		if d.Severity != wire.Warning && !slices.Contains(texts, d.Summary) {
			texts = append(texts, d.Summary)
		}
	}
	if more := len(texts) - maxProblems; more > 0 {
		texts = append(texts[:maxProblems], fmt.Sprintf("and %d more errors", more))
	}
	return oneLine(strings.Join(texts, "; "))
}

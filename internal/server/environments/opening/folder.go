package opening

import (
	"context"
	"errors"
	"slices"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// CheckIn implements [environments.Evaluator]. In a closed folder, nothing of the server but the environment's own key is
// used, and that only to recognize its ciphertexts.
func (d Definitions) CheckIn(ctx context.Context, p identity.Principal, e store.Environment, key *environments.Key, definition string, in environments.Folder) (environments.Checked, error) {
	h, err := d.hostOfDefinition(ctx, p, e, key, definition, store.ReadEnvironment)
	if err != nil {
		return environments.Checked{}, err
	}
	h.folder = &in
	out, err := d.checkWith(ctx, h)
	if err != nil || !out.Diagnostics.HasErrors() || len(h.outside) == 0 {
		return out, err
	}
	// What an import lacks can cause any error. So only what needs no imports is checked.
	rewritten, err := d.Encrypt(ctx, e, key, definition)
	if diagnosed, ok := errors.AsType[*environments.DiagnosticsError](err); ok {
		return environments.Checked{Diagnostics: diagnosed.Diagnostics}, nil
	}
	if fault.KindOf(err) == fault.KindInvalid {
		return environments.Checked{Diagnostics: wire.Diagnostics{{Summary: err.Error()}}}, nil
	}
	if err != nil {
		return environments.Checked{}, err
	}
	out = environments.Checked{Definition: rewritten, Plaintext: rewritten != definition, Outside: h.outside}
	if foreign(key, definition) {
		out.Diagnostics = append(out.Diagnostics, errForeign)
	}
	return out, nil
}

// inFolder answers a question for an import that a folder contains, or that a closed one does not contain.
func (h *host) inFolder(ref environments.Reference) (answer wire.Answer, done bool) {
	unversioned := environments.Reference{Project: ref.Project, Name: ref.Name}
	definition, ok := h.folder.Definitions[unversioned]
	switch {
	case ok && (ref.Version == "" || ref.Version == store.LatestVersion):
		if h.size += len(definition); h.size > maxImported {
			return importedTooMuch, true
		}
		return wire.Answer{Environment: &wire.EnvironmentAnswer{Name: unversioned.String(), Definition: []byte(definition)}}, true
	case h.folder.Closed:
		if !slices.Contains(h.outside, ref) {
			h.outside = append(h.outside, ref)
		}
		return wire.Answer{Error: "the folder does not contain this environment"}, true
	}
	return answer, false
}

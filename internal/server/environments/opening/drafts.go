package opening

import (
	"context"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Draft is what a definition evaluates to while it is being written.
type Draft struct {
	// Values are known as far as the definition has no errors. Ciphertexts, imported secrets and outputs of providers are
	// unknown. Secrets that the definition contains in plain text are values.
	Values      wire.Values
	Diagnostics wire.Diagnostics
}

// Draft evaluates a definition that can have errors, without opening providers and without decrypting. The caller needs the
// permission to read what it imports.
func (s *Service) Draft(ctx context.Context, p identity.Principal, root Root) (Draft, error) {
	h := s.hostFor(p, root, store.ReadEnvironment)
	req := h.request(wire.Check)
	req.Details = true
	result, err := s.opts.Evaluator.Run(ctx, h.owner(), req, h)
	if err != nil {
		return Draft{}, err
	}
	d := Draft{Diagnostics: result.Diagnostics}
	if result.Error != "" {
		d.Diagnostics = append(d.Diagnostics, wire.Diagnostic{Summary: oneLine(result.Error), Severity: wire.Error})
	}
	if result.Environment != nil {
		d.Values = result.Environment.Properties
	}
	if root.Environment == nil || d.Diagnostics.HasErrors() {
		return d, nil
	}
	key, err := s.opts.Environments.Key(ctx, *root.Environment)
	if err != nil {
		return Draft{}, err
	}
	if foreign(key, root.Definition) {
		d.Diagnostics = append(d.Diagnostics, errForeign)
	}
	return d, nil
}

// Values opens an environment without a session, and returns its values. The caller needs the permission to open all
// environments. Problems of the definition are an [environments.DiagnosticsError].
func (s *Service) Values(ctx context.Context, p identity.Principal, root Root) (wire.Values, wire.Diagnostics, error) {
	h := s.hostFor(p, root, store.OpenEnvironment)
	result, err := s.run(ctx, h, h.request(wire.Open))
	if err != nil {
		return nil, nil, err
	}
	var values wire.Values
	if result.Environment != nil { // not of an empty definition
		values = result.Environment.Properties
	}
	return values, result.Diagnostics, fault.During(s.account(ctx, h, values, nil), "opening an environment")
}

package opening

import (
	"context"
	"regexp"
	"slices"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Definitions implements [environments.Evaluator].
type Definitions struct{ *Service }

// Check implements [environments.Evaluator]. The caller needs the permission to read what the definition imports.
func (d Definitions) Check(ctx context.Context, p identity.Principal, e store.Environment, key *environments.Key, definition string) (environments.Checked, error) {
	h, err := d.hostOfDefinition(ctx, p, e, key, definition, store.ReadEnvironment)
	if err != nil {
		return environments.Checked{}, err
	}
	return d.checkWith(ctx, h)
}

// checkWith checks the definition of a host, and encrypts its secrets.
func (d Definitions) checkWith(ctx context.Context, h *host) (environments.Checked, error) {
	result, err := d.opts.Evaluator.Run(ctx, h.owner(), h.request(wire.Encrypt), h)
	switch {
	case err != nil:
		return environments.Checked{}, err
	case result.Error != "":
		return environments.Checked{}, fault.Invalid("%s", oneLine(result.Error))
	}
	out := environments.Checked{Diagnostics: result.Diagnostics}
	if result.Failed() {
		return out, nil
	}
	if foreign(h.key, h.root.Definition) {
		out.Diagnostics = append(out.Diagnostics, errForeign)
		return out, nil
	}
	out.Definition, out.Plaintext = string(result.Definition), h.encrypted
	for _, text := range result.Imports {
		if ref, err := environments.ParseReference(text); err == nil && !slices.Contains(out.Imports, ref) {
			out.Imports = append(out.Imports, ref)
		}
	}
	return out, nil
}

// Encrypt implements [environments.Evaluator].
func (d Definitions) Encrypt(ctx context.Context, e store.Environment, key *environments.Key, definition string) (string, error) {
	h, err := d.hostOfDefinition(ctx, identity.Principal{}, e, key, definition, store.NoEnvironment)
	if err != nil {
		return "", err
	}
	req := h.request(wire.Encrypt)
	req.Unchecked = true
	result, err := d.run(ctx, h, req)
	if err != nil {
		return "", err
	}
	return string(result.Definition), nil
}

// Decrypt implements [environments.Evaluator].
func (d Definitions) Decrypt(ctx context.Context, e store.Environment, key *environments.Key, definition string) (string, error) {
	h, err := d.hostOfDefinition(ctx, identity.Principal{}, e, key, definition, store.OpenEnvironment)
	if err != nil {
		return "", err
	}
	result, err := d.run(ctx, h, h.request(wire.Decrypt))
	if err != nil {
		return "", err
	}
	return string(result.Definition), nil
}

// hostOfDefinition returns the host of an evaluation of a definition that need not be stored.
func (d Definitions) hostOfDefinition(ctx context.Context, p identity.Principal, e store.Environment, key *environments.Key, definition string, need store.EnvironmentPermission) (*host, error) {
	org, err := store.Read(ctx, d.db, func(tx *store.Tx) (store.Organization, error) { return tx.Organization(e.OrgID) })
	if err != nil {
		return nil, fault.While(err, "looking up an organization")
	}
	h := d.hostFor(p, Root{Org: org, Environment: &e, Definition: definition}, need)
	h.key = key
	return h, nil
}

var errForeign = wire.Diagnostic{
	Summary: "the definition contains a ciphertext of another environment, or one that was changed: set that secret again",
}

// foreign reports whether a definition contains a ciphertext that is not one of a key.
func foreign(key *environments.Key, definition string) bool {
	return slices.ContainsFunc(ciphertexts.FindAllString(definition, -1), func(text string) bool { return !opens(key, text) })
}

func opens(key *environments.Key, text string) bool {
	_, err := decryptWith(key, text)
	return err == nil
}

// ciphertexts matches what begins as the envelope of a ciphertext; see [wrap]. One that is split into lines is found when the
// environment is opened.
var ciphertexts = regexp.MustCompile(`ZXNjeAAAAA[E-H][A-Za-z0-9+/]*=*`)

// request returns a request for the root.
func (h *host) request(op wire.Op) wire.Request {
	h.op = op
	return wire.Request{
		Op: op, Name: name(h.root.Environment), Definition: []byte(h.root.Definition), Context: contextOf(h.p, h.root.Org),
	}
}

package stacks

import (
	"bytes"
	"context"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// ExportOutputs returns the current state of a stack reduced to the stack's outputs, in the form
// that a StackReference reads.
func (s *Service) ExportOutputs(ctx context.Context, stackID string) (*State, error) {
	state, err := s.Export(ctx, stackID)
	if err != nil || state.Empty() {
		return state, err
	}
	var doc bytes.Buffer
	doc.WriteByte('{')
	// The manifest holds pulumi's version, secrets_providers what decrypts secrets.
	writeMembers(&doc, state.Deployment, "manifest", "secrets_providers")
	if doc.Len() > 1 {
		doc.WriteByte(',')
	}
	doc.WriteString(`"resources":[`)
	if root := rootStack(state); root != nil {
		doc.WriteByte('{')
		writeMembers(&doc, root, "urn", "custom", "type", "outputs")
		doc.WriteByte('}')
	}
	doc.WriteString("]}")
	return &State{Schema: state.Schema, Features: state.Features, Deployment: doc.Bytes()}, nil
}

func writeMembers(doc *bytes.Buffer, object []byte, names ...string) {
	sep := ""
	for _, name := range names {
		if value := rawjson.Member(object, name); value != nil {
			doc.WriteString(sep + `"` + name + `":`)
			doc.Write(value)
			sep = ","
		}
	}
}

// rootStack returns the resource that represents the stack itself, or nil.
func rootStack(state *State) []byte {
	for r := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) {
		parent := string(rawjson.Member(r, "parent"))
		if string(rawjson.Member(r, "type")) == `"pulumi:pulumi:Stack"` && (parent == "" || parent == `""`) {
			return r
		}
	}
	return nil
}

// CheckOutputSecrets returns nil if all base64 ciphertexts occur in a stack's outputs.
func (s *Service) CheckOutputSecrets(ctx context.Context, st store.Stack, ciphertexts []string) error {
	state, err := s.Export(ctx, st.ID)
	if err != nil {
		return err
	}
	missing := make(map[string]struct{}, len(ciphertexts))
	for _, text := range ciphertexts {
		missing[text] = struct{}{}
	}
	for text := range rawjson.Texts(rawjson.Member(rootStack(state), "outputs")) {
		delete(missing, string(text))
	}
	if len(missing) > 0 {
		return fault.NotFound("Not Found: a secret is not among the outputs of stack '%s', or not any more; if the stack was just updated, try again", st.Ref())
	}
	return nil
}

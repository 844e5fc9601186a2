package opening

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// maxStacks is the number of stacks whose outputs one use of the provider returns.
const maxStacks = 100

var errInputs = fault.Invalid(`the provider pulumi-stacks needs stacks, by names that you choose, as in {"stacks": {"network": {"stack": "project/stack"}}}`)

// openStacks returns the outputs of stacks, by the names in the inputs. The caller must be able to read them.
func (h *host) openStacks(ctx context.Context, inputs wire.Values) (wire.Value, error) {
	list, ok := inputs["stacks"].Value.(map[string]wire.Value)
	if !ok {
		return wire.Value{}, errInputs
	}
	if len(list) > maxStacks {
		return wire.Value{}, fault.Invalid("the provider pulumi-stacks returns the outputs of at most %d stacks, and this names %d", maxStacks, len(list))
	}
	out := map[string]wire.Value{}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		members, _ := list[key].Value.(map[string]wire.Value)
		text, ok := members["stack"].Value.(string)
		if !ok {
			return wire.Value{}, errInputs
		}
		project, name, ok := strings.Cut(text, "/")
		if !ok || strings.Contains(name, "/") {
			return wire.Value{}, fault.Invalid("%q does not name a stack of the organization; write project/stack", oneLine(text))
		}
		outputs, err := h.outputsOf(ctx, project, name)
		if err != nil {
			return wire.Value{}, err
		}
		out[key] = outputs
	}
	return wire.Value{Value: out}, nil
}

// outputsOf returns the current outputs of a stack.
func (h *host) outputsOf(ctx context.Context, project, name string) (wire.Value, error) {
	if known, ok := h.outputs[project+"/"+name]; ok { // an evaluation sees one version of a stack
		return known, nil
	}
	// Not StateRead: who may only read the state does not decrypt its secrets.
	p, st, err := h.s.opts.Stacks.Find(ctx, h.p, identity.Outputs|identity.Decrypt, h.root.Org.Name, project, name)
	if err == nil && st.OrgID != h.root.Org.ID {
		err = h.p.NoStack(h.root.Org.Name, project, name)
	}
	if err != nil {
		return wire.Value{}, err
	}
	share := budget.Of(ctx)
	held := share.Held()
	state, err := h.s.opts.Stacks.OpenOutputs(ctx, p, st)
	if err != nil {
		return wire.Value{}, err
	}
	o := outputs{st: st}
	size := 0
	out := map[string]wire.Value{}
	err = h.s.opts.Stacks.Decrypt(ctx, p, st, func(decrypt func([]byte) ([]byte, error)) error {
		o.decrypt = decrypt
		for resource := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) {
			var values map[string]any
			raw := rawjson.Member(resource, "outputs")
			size += len(raw)
			if err := decode(raw, &values); err != nil {
				return fault.Wrap(fault.KindDamaged, err, "the outputs of stack '%s' cannot be read", st.Ref())
			}
			for key, value := range values {
				if out[key], err = o.value(value, 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return wire.Value{}, err
	}
	share.Give(share.Held() - held) // the state; only the outputs are kept
	if err := share.Take(ctx, 8*int64(size)); err != nil {
		return wire.Value{}, err
	}
	h.outputs[project+"/"+name] = wire.Value{Value: out}
	return wire.Value{Value: out}, nil
}

// decode parses JSON. Absent JSON leaves v unchanged.
func decode(data []byte, v any) error {
	if data == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

// The members of secrets in states.
const (
	signatureKey    = "4dabf18193072939515e22adb298388d"
	secretSignature = "1b47061264138c4ac30d75fd1eb44270"
)

// outputs converts the outputs of a stack.
type outputs struct {
	st      store.Stack
	decrypt func(ciphertext []byte) ([]byte, error)
}

// value returns an output in the form of environments.
func (o *outputs) value(v any, depth int) (wire.Value, error) {
	if depth > wire.MaxNesting/2 {
		return wire.Value{}, fault.Invalid("the outputs of stack '%s' are nested too deep", o.st.Ref())
	}
	switch v := v.(type) {
	case []any:
		list := make([]wire.Value, len(v))
		for i, element := range v {
			var err error
			if list[i], err = o.value(element, depth+1); err != nil {
				return wire.Value{}, err
			}
		}
		return wire.Value{Value: list}, nil
	case map[string]any:
		if v[signatureKey] == secretSignature {
			plain, err := o.secret(v)
			if err != nil {
				return wire.Value{}, err
			}
			value, err := o.value(plain, depth+1)
			return asSecret(value), err
		}
		object := map[string]wire.Value{}
		for key, member := range v {
			var err error
			if object[key], err = o.value(member, depth+1); err != nil {
				return wire.Value{}, err
			}
		}
		return wire.Value{Value: object}, nil
	default:
		return wire.Value{Value: v}, nil
	}
}

// asSecret returns a value as a secret, with all its members.
func asSecret(v wire.Value) wire.Value {
	v.Secret = true
	switch content := v.Value.(type) {
	case []wire.Value:
		for i := range content {
			content[i] = asSecret(content[i])
		}
	case map[string]wire.Value:
		for key := range content {
			content[key] = asSecret(content[key])
		}
	}
	return v
}

// secret returns the value of a secret output.
func (o *outputs) secret(secret map[string]any) (value any, err error) {
	var plaintext []byte
	if text, ok := secret["plaintext"].(string); ok {
		plaintext = []byte(text)
	} else {
		text, _ := secret["ciphertext"].(string)
		ciphertext, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			plaintext, err = o.decrypt(ciphertext)
		}
		if _, corrupt := errors.AsType[base64.CorruptInputError](err); corrupt || fault.KindOf(err) == fault.KindInvalid {
			return nil, fault.Invalid("a secret output of stack '%s' is not encrypted by this server, which alone can decrypt it for environments; "+
				"change the stack's secrets provider: pulumi stack change-secrets-provider default", o.st.Ref())
		}
		if err != nil {
			return nil, err
		}
	}
	if decode(plaintext, &value) != nil { // the error could contain a part of the secret
		return nil, fault.New(fault.KindDamaged, "a secret output of stack '%s' cannot be read", o.st.Ref())
	}
	return value, nil
}

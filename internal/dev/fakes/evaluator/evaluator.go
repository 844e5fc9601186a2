// Package evaluator imitates the evaluator of environments for tests of what stores them. It knows secrets that are words,
// imports in a list of one line each, and definitions with the word BROKEN, which have an error.
package evaluator

import (
	"context"
	"encoding/base64"
	"regexp"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// Evaluator is an [environments.Evaluator].
type Evaluator struct {
	// Fail is the error of all calls, unless it is nil.
	Fail error
	// Checking is called before each check, unless it is nil.
	Checking func()
}

var (
	plain  = regexp.MustCompile(`fn::secret: ([a-z0-9-]+)`)
	sealed = regexp.MustCompile(`fn::secret: \{ciphertext: ([^}]+)\}`)
	item   = regexp.MustCompile(`(?m)^- (\S+)$`)
)

// Check implements [environments.Evaluator].
func (f *Evaluator) Check(ctx context.Context, _ identity.Principal, e store.Environment, key *environments.Key, definition string) (environments.Checked, error) {
	if f.Checking != nil {
		f.Checking()
	}
	var out environments.Checked
	if strings.Contains(definition, "BROKEN") {
		out.Diagnostics = append(out.Diagnostics, wire.Diagnostic{
			Summary: "unknown word BROKEN", Range: &wire.Range{Environment: e.Name, Begin: wire.Position{Line: 1, Column: 1}, End: wire.Position{Line: 1, Column: 7, Byte: 6}},
		})
		return out, f.Fail
	}
	if strings.Contains(definition, "UNUSUAL") {
		out.Diagnostics = append(out.Diagnostics, wire.Diagnostic{Summary: "unusual word", Severity: wire.Warning})
	}
	for _, m := range item.FindAllStringSubmatch(definition, -1) {
		r, err := environments.ParseReference(m[1])
		if err != nil {
			return out, err
		}
		out.Imports = append(out.Imports, r)
	}
	var err error
	out.Definition, err = f.Encrypt(ctx, e, key, definition)
	return out, err
}

// CheckIn implements [environments.Evaluator]. An import that is neither in the folder nor, unless the folder is closed, an
// environment with the word STORED in its name, is an error.
func (f *Evaluator) CheckIn(ctx context.Context, p identity.Principal, e store.Environment, key *environments.Key, definition string, in environments.Folder) (environments.Checked, error) {
	out, err := f.Check(ctx, p, e, key, definition)
	if err != nil || out.Diagnostics.HasErrors() {
		return out, err
	}
	out.Plaintext = out.Definition != definition
	for _, r := range out.Imports {
		if _, ok := in.Definitions[environments.Reference{Project: r.Project, Name: r.Name}]; ok {
			continue
		}
		if in.Closed {
			out.Outside = append(out.Outside, r)
		} else if !strings.Contains(r.Name, "STORED") {
			out.Diagnostics = append(out.Diagnostics, wire.Diagnostic{Summary: "environment " + r.String() + " does not exist"})
		}
	}
	return out, nil
}

// Encrypt implements [environments.Evaluator].
func (f *Evaluator) Encrypt(_ context.Context, _ store.Environment, key *environments.Key, definition string) (string, error) {
	return plain.ReplaceAllStringFunc(definition, func(text string) string {
		secret := plain.FindStringSubmatch(text)[1]
		return "fn::secret: {ciphertext: " + base64.StdEncoding.EncodeToString(key.Encrypt([]byte(secret))) + "}"
	}), f.Fail
}

// Decrypt implements [environments.Evaluator].
func (f *Evaluator) Decrypt(_ context.Context, _ store.Environment, key *environments.Key, definition string) (string, error) {
	fail := f.Fail
	out := sealed.ReplaceAllStringFunc(definition, func(text string) string {
		raw, err := base64.StdEncoding.DecodeString(sealed.FindStringSubmatch(text)[1])
		var secret []byte
		if err == nil {
			secret, err = key.Decrypt(raw)
		}
		if err != nil {
			fail = err
		}
		return "fn::secret: " + string(secret)
	})
	return out, fail
}

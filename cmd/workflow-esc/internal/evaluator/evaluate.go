package evaluator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc/ast"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc/eval"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc/syntax"
	"gopkg.in/yaml.v3"

	"workflowagent/internal/esc/wire"
)

// evaluation serves one request.
type evaluation struct {
	peer    *peer
	request *wire.Request
	// name is the environment's, or that which the language gives to an environment without one.
	name string
}

// evaluate returns the result of a request. An error means that the server is gone.
func evaluate(peer *peer, request *wire.Request) (result *wire.Result, err error) {
	e := &evaluation{peer: peer, request: request, name: request.Name}
	if e.name == "" {
		e.name = esc.AnonymousEnvironmentName
	}
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case errGone:
			err = reason.err
		default:
			// The reason may contain values.
			result = &wire.Result{Error: "the evaluator of environments failed in " + panicked(), Fault: true}
		}
	}()
	result, failure := e.serve()
	if failure != nil {
		result = &wire.Result{Error: failure.Error()}
	}
	return result, nil
}

// panicked returns the function and line that panicked. A deferred function must call it.
func panicked() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if !more || !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", frame.Function, frame.Line)
		}
	}
}

func (e *evaluation) serve() (*wire.Result, error) {
	if size := len(e.request.Definition); size > wire.MaxDefinition {
		return nil, tooLarge(size)
	}
	switch e.request.Op {
	case wire.Check, wire.Open:
		return e.evaluate()
	case wire.Encrypt:
		return e.encrypt()
	case wire.Decrypt:
		return e.decrypt()
	}
	return nil, fmt.Errorf("unknown request %q", e.request.Op)
}

func tooLarge(size int) error {
	return fmt.Errorf("the definition has %d bytes, and %d are allowed: move parts of it to an environment that it imports",
		size, wire.MaxDefinition)
}

// parse returns nil for a definition with errors.
func (e *evaluation) parse(result *wire.Result) (*ast.EnvironmentDecl, syntax.Diagnostics, error) {
	declared, diagnostics, err := eval.LoadYAMLBytes(e.name, e.request.Definition)
	if err != nil {
		return nil, nil, err
	}
	if diagnostics.HasErrors() {
		return nil, diagnostics, nil
	}
	for _, entry := range declared.Imports.GetElements() {
		if entry.Environment != nil {
			result.Imports = append(result.Imports, entry.Environment.Value)
		}
	}
	if count := len(result.Imports); count > wire.MaxImports {
		return nil, nil, fmt.Errorf("the definition imports %d environments, and %d are allowed", count, wire.MaxImports)
	}
	return declared, diagnostics, nil
}

// run evaluates a definition.
func (e *evaluation) run(declared *ast.EnvironmentDecl, open, showSecrets bool) (*esc.Environment, syntax.Diagnostics, error) {
	execution, err := esc.NewExecContext(importValues(e.request.Context))
	if err != nil {
		return nil, nil, fmt.Errorf("the context of the environment: %w", err)
	}
	options := eval.EvalOptions{TraceMode: eval.TraceModeNone}
	if e.request.Details {
		options.TraceMode = eval.TraceModeFull
	}
	secrets := &crypter{peer: e.peer, environment: e.request.Name, root: true}
	providers := &providers{peer: e.peer, known: map[string]*provider{}}
	imports := newImports(e.peer, e.name, e.request.Name)
	ctx := context.Background()
	if open {
		environment, diagnostics := eval.EvalEnvironment(ctx, e.name, declared, secrets, providers, imports, execution, options)
		return environment, diagnostics, nil
	}
	environment, diagnostics := eval.CheckEnvironment(ctx, e.name, declared, secrets, providers, imports, execution, showSecrets, options)
	return environment, diagnostics, nil
}

func (e *evaluation) evaluate() (*wire.Result, error) {
	result := &wire.Result{}
	declared, diagnostics, err := e.parse(result)
	if err != nil {
		return nil, err
	}
	if declared != nil {
		environment, more, err := e.run(declared, e.request.Op == wire.Open, e.request.ShowSecrets)
		if err != nil {
			return nil, err
		}
		diagnostics.Extend(more...)
		if result.Environment, err = exportEnvironment(environment, e.request.Details); err != nil {
			return nil, err
		}
	}
	result.Diagnostics = exportDiagnostics(diagnostics)
	return result, nil
}

// encrypt checks the definition before secrets are encrypted, because positions refer to that text.
func (e *evaluation) encrypt() (*wire.Result, error) {
	result := &wire.Result{}
	if e.request.Unchecked {
		return e.rewrite(result, e.encryptSecrets)
	}
	if several(e.request.Definition) {
		return nil, errors.New("the definition has more than one YAML document: remove what follows the line ---")
	}
	declared, diagnostics, err := e.parse(result)
	if err != nil {
		return nil, err
	}
	if declared != nil {
		_, more, err := e.run(declared, false, e.request.ShowSecrets)
		if err != nil {
			return nil, err
		}
		diagnostics.Extend(more...)
	}
	result.Diagnostics = exportDiagnostics(diagnostics)
	if result.Failed() {
		return result, nil
	}
	return e.rewrite(result, e.encryptSecrets)
}

// several reports whether a text has more than one YAML document. The library reads the first one only, so secrets in others
// would be stored as they are.
func several(text []byte) bool {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var node yaml.Node
	return documents.Decode(&node) == nil && !errors.Is(documents.Decode(&node), io.EOF)
}

func (e *evaluation) encryptSecrets(secrets *crypter) ([]byte, error) {
	return eval.EncryptSecrets(context.Background(), e.name, e.request.Definition, secrets)
}

func (e *evaluation) decrypt() (*wire.Result, error) {
	return e.rewrite(&wire.Result{}, func(secrets *crypter) ([]byte, error) {
		return eval.DecryptSecrets(context.Background(), e.name, e.request.Definition, secrets)
	})
}

// rewrite returns the definition with other secrets. One without any keeps its form to the byte; otherwise it is
// written anew, with its comments.
func (e *evaluation) rewrite(result *wire.Result, with func(*crypter) ([]byte, error)) (*wire.Result, error) {
	asked := e.peer.asks
	definition, err := with(&crypter{peer: e.peer, environment: e.request.Name, root: true})
	if diagnostics, ok := errors.AsType[syntax.Diagnostics](err); ok {
		result.Diagnostics = exportDiagnostics(diagnostics)
		return result, nil
	}
	if err != nil {
		return nil, err
	}
	if e.peer.asks == asked {
		definition = e.request.Definition
	}
	if len(definition) > wire.MaxDefinition {
		return nil, tooLarge(len(definition))
	}
	result.Definition = definition
	return result, nil
}

// exportDiagnostics puts errors first, so that none of them is left out because of warnings.
func exportDiagnostics(diagnostics syntax.Diagnostics) wire.Diagnostics {
	slices.SortStableFunc(diagnostics, func(a, b *syntax.Diagnostic) int { return int(a.Severity) - int(b.Severity) })
	var exported wire.Diagnostics
	for _, d := range diagnostics[:min(len(diagnostics), wire.MaxDiagnostics)] {
		one := wire.Diagnostic{Summary: short(d.Summary), Detail: short(d.Detail), Severity: wire.Error}
		if d.Severity == hcl.DiagWarning {
			one.Severity = wire.Warning
		}
		if d.Subject != nil {
			one.Range = &wire.Range{
				Environment: d.Subject.Filename,
				Begin:       wire.Position{Line: d.Subject.Start.Line, Column: d.Subject.Start.Column, Byte: d.Subject.Start.Byte},
				End:         wire.Position{Line: d.Subject.End.Line, Column: d.Subject.End.Column, Byte: d.Subject.End.Byte},
			}
		}
		exported = append(exported, one)
	}
	return exported
}

// longest bounds a text of a diagnostic, in bytes.
const longest = 2000

func short(text string) string {
	if len(text) <= longest {
		return text
	}
	return text[:longest] + "…"
}

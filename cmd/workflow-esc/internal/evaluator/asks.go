package evaluator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/esc"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc/eval"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc/schema"

	"workflowagent/internal/esc/wire"
)

// crypter lets the server encrypt and decrypt the secrets of an environment.
type crypter struct {
	peer        *peer
	environment string
	root        bool
}

// Encrypt implements [eval.Encrypter].
func (c *crypter) Encrypt(_ context.Context, plaintext []byte) ([]byte, error) {
	answer, err := c.peer.ask(wire.Ask{Encrypt: &wire.EncryptAsk{Plaintext: plaintext}})
	if err != nil {
		return nil, err
	}
	return answer.Bytes, nil
}

// Decrypt implements [eval.Decrypter].
func (c *crypter) Decrypt(_ context.Context, ciphertext []byte) ([]byte, error) {
	answer, err := c.peer.ask(wire.Ask{Decrypt: &wire.DecryptAsk{Environment: c.environment, Root: c.root, Ciphertext: ciphertext}})
	if err != nil {
		return nil, err
	}
	return answer.Bytes, nil
}

// imports lets the server read imported environments.
type imports struct {
	peer *peer
	// root is the name of the definition in the evaluator, and rootName that in asks.
	root, rootName string
	// depths is how many imports lead to an environment, by resolved name.
	depths map[string]int
	loaded int
	// next is what the server answered about an import that is about to be loaded.
	next      *wire.EnvironmentAnswer
	nextName  string
	nextDepth int
}

func newImports(peer *peer, root, rootName string) *imports {
	return &imports{peer: peer, root: root, rootName: rootName, depths: map[string]int{root: 0}}
}

// AuthorizeImport implements [eval.EnvironmentLoader]. The evaluator calls it for each pair of environments,
// and then LoadEnvironment if it did not load the imported one yet. One ask serves both.
func (i *imports) AuthorizeImport(_ context.Context, importer, imported string, importerIsRoot bool) error {
	if len(imported) > wire.MaxName {
		return fmt.Errorf("the name of the imported environment has more than %d bytes", wire.MaxName)
	}
	depth := i.depths[importer] + 1
	if depth > wire.MaxDepth {
		return fmt.Errorf("environments import each other more than %d deep", wire.MaxDepth)
	}
	if importerIsRoot {
		importer = i.rootName
	}
	answer, err := i.peer.ask(wire.Ask{Environment: &wire.EnvironmentAsk{Name: imported, Importer: importer, Root: importerIsRoot}})
	if err != nil {
		return err
	}
	if answer.Environment == nil {
		return errors.New("the server did not answer with an environment")
	}
	i.next, i.nextName, i.nextDepth = answer.Environment, imported, depth
	return nil
}

// LoadEnvironment implements [eval.EnvironmentLoader].
func (i *imports) LoadEnvironment(_ context.Context, name string) ([]byte, string, eval.Decrypter, error) {
	if i.next == nil || i.nextName != name {
		return nil, "", nil, errors.New("the import was not authorized")
	}
	if i.loaded++; i.loaded > wire.MaxImports {
		return nil, "", nil, fmt.Errorf("the environment imports more than %d environments", wire.MaxImports)
	}
	answer := i.next
	i.next = nil
	if _, ok := i.depths[answer.Name]; !ok {
		i.depths[answer.Name] = i.nextDepth
	}
	return answer.Definition, answer.Name, &crypter{peer: i.peer, environment: answer.Name}, nil
}

// providers lets the server open providers.
type providers struct {
	peer  *peer
	known map[string]*provider
}

// LoadProvider implements [eval.ProviderLoader].
func (p *providers) LoadProvider(_ context.Context, name string) (esc.Provider, error) {
	if known, ok := p.known[name]; ok {
		return known, nil
	}
	if len(name) > wire.MaxName {
		return nil, fmt.Errorf("the name of the provider has more than %d bytes", wire.MaxName)
	}
	answer, err := p.peer.ask(wire.Ask{Provider: &wire.ProviderAsk{Name: name}})
	if err != nil {
		return nil, err
	}
	if answer.Provider == nil {
		return nil, errors.New("the server did not answer with a provider")
	}
	loaded := &provider{peer: p.peer, name: name, inputs: &schema.Schema{}, outputs: &schema.Schema{}}
	for _, one := range []struct {
		text json.RawMessage
		into *schema.Schema
	}{{answer.Provider.Inputs, loaded.inputs}, {answer.Provider.Outputs, loaded.outputs}} {
		if err := json.Unmarshal(one.text, one.into); err != nil {
			return nil, fmt.Errorf("the schema of the provider %s: %w", name, err)
		}
	}
	p.known[name] = loaded
	return loaded, nil
}

// LoadRotator implements [eval.ProviderLoader].
func (p *providers) LoadRotator(_ context.Context, name string) (esc.Rotator, error) {
	return nil, fmt.Errorf("this server has no rotator %q: it does not rotate secrets", name)
}

type provider struct {
	peer            *peer
	name            string
	inputs, outputs *schema.Schema
}

// Schema implements [esc.Provider].
func (p *provider) Schema() (inputs, outputs *schema.Schema) {
	return p.inputs, p.outputs
}

// Open implements [esc.Provider].
func (p *provider) Open(_ context.Context, inputs map[string]esc.Value, execution esc.EnvExecContext) (esc.Value, error) {
	exported, err := exportValues(inputs, false)
	if err != nil {
		return esc.Value{}, err
	}
	answer, err := p.peer.ask(wire.Ask{Open: &wire.OpenAsk{
		Provider: p.name, Inputs: exported,
		Current: execution.GetCurrentEnvironmentName(), Root: execution.GetRootEnvironmentName(),
	}})
	if err != nil {
		return esc.Value{}, err
	}
	if answer.Value == nil {
		return esc.Value{}, errors.New("the server did not answer with a value")
	}
	return importValue(*answer.Value), nil
}

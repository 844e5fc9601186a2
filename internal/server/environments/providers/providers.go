// Package providers opens what definitions of environments name with fn::open: it logs in to clouds and to Vault, reads
// secrets, and asks adapters of the organization.
//
// The author of a definition controls all inputs, and the remote end controls its response. So identity tokens say only what
// the server knows itself, calls reach only what webhooks may reach, and errors contain neither inputs nor responses.
package providers

import (
	"context"
	"encoding/json"
	"slices"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

// Provider is a provider of values.
type Provider struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Inputs      json.RawMessage `json:"inputs"`
	Outputs     json.RawMessage `json:"outputs"`

	open func(ctx context.Context, c *Call) (wire.Value, error)
	// calls is true if the provider sends inputs or tokens to another server.
	calls bool
}

// Calls reports whether the provider sends inputs or identity tokens to another server.
func (p Provider) Calls() bool { return p.calls }

// providers are all providers, by their names.
var providers = []Provider{awsLogin, azureLogin, external, gcpLogin, oidc, pulumiStacks, vaultLogin, vaultSecrets}

// All returns all providers, by name.
func All() []Provider { return slices.Clone(providers) }

// Names returns the names of all providers.
func Names() []string {
	names := make([]string, len(providers))
	for i, p := range providers {
		names[i] = p.Name
	}
	return names
}

// Find returns the provider with a name.
func Find(name string) (Provider, bool) {
	i := slices.IndexFunc(providers, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return Provider{}, false
	}
	return providers[i], true
}

// Options are the options of [New].
type Options struct {
	// Issuer signs identity tokens. Without it, providers that need one are refused.
	Issuer *issuer.Service
	// Client makes all calls.
	Client *outbound.Client
}

// Service opens providers. Its methods may be called concurrently.
type Service struct{ opts Options }

// New returns a service.
func New(o Options) *Service { return &Service{o} }

// Environment is an environment as identity tokens name it. The zero value is a definition without a name.
type Environment struct{ ID, Project, Name string }

// Of returns an environment as identity tokens name it.
func Of(e store.Environment) Environment { return Environment{e.ID, e.Project, e.Name} }

// String returns the name as project/environment.
func (e Environment) String() string {
	if e == (Environment{}) {
		return anonymous
	}
	return e.Project + "/" + e.Name
}

// attribute returns the name in subjects, in which the default project is left out.
func (e Environment) attribute() string {
	if e.Project == environments.DefaultProject {
		return e.Name
	}
	return e.String()
}

// anonymous stands for a definition without a name.
const anonymous = "<yaml>"

// Token is an identity token that is about to be signed.
type Token struct {
	Environment       Environment
	Subject, Audience string
}

// Call opens a provider once.
type Call struct {
	Inputs wire.Values
	Org    store.Organization
	// Current is the environment whose definition contains fn::open, and Root the one that was opened.
	Current, Root Environment
	// User is the login of the user who opens the environment, or "".
	User string
	// Stacks returns the outputs of stacks, for the provider pulumi-stacks.
	Stacks func(ctx context.Context, inputs wire.Values) (wire.Value, error)
	// Signing records a token before it is signed.
	Signing func(ctx context.Context, t Token) error
	// Used is what the evaluation has used up.
	Used *Usage

	provider string
	opts     *Options
}

// Open opens a provider.
func (s *Service) Open(ctx context.Context, p Provider, c Call) (wire.Value, error) {
	if c.Used.opens++; c.Used.opens > maxOpens {
		return wire.Value{}, fault.Invalid("an evaluation can open at most %d providers, and this opens more", maxOpens)
	}
	c.provider, c.opts = p.Name, &s.opts
	return p.open(ctx, &c)
}

// ContextSchema is the JSON schema of what definitions know about the caller, as ${context}.
func ContextSchema() json.RawMessage { return contextSchema }

var contextSchema = encode(objectOf("what the definition knows about its evaluation", nil, fields{
	"pulumi": objectOf("the server's own values", nil, fields{
		"organization": objectOf("the organization of the environment", nil, fields{"id": textOf("the id"), "login": textOf("the name")}),
		"user":         objectOf("the user who opens the environment", nil, fields{"id": textOf("the id"), "login": textOf("the login")}),
	}),
	"rootEnvironment":    objectOf("the environment that is opened", nil, fields{"name": textOf("the name, as project/environment")}),
	"currentEnvironment": objectOf("the environment whose definition contains the expression", nil, fields{"name": textOf("the name, as project/environment")}),
}))

package opening

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

// Provider implements [evaluator.Host].
func (h *host) Provider(_ context.Context, ask wire.ProviderAsk) (wire.Answer, error) {
	p, ok := providers.Find(ask.Name)
	if !ok {
		return wire.Answer{Error: fmt.Sprintf("this server has no provider %q; it has: %s", termtext.OneLine(ask.Name, wire.MaxName), strings.Join(providers.Names(), ", "))}, nil
	}
	return wire.Answer{Provider: &wire.ProviderAnswer{Inputs: p.Inputs, Outputs: p.Outputs}}, nil
}

// Open implements [evaluator.Host].
func (h *host) Open(ctx context.Context, ask wire.OpenAsk) (wire.Answer, error) {
	p, ok := providers.Find(ask.Provider)
	if !ok || !h.secret() || h.op != wire.Open {
		return wire.Answer{Error: "this provider cannot be opened here"}, nil
	}
	call := providers.Call{
		Inputs: ask.Inputs, Org: h.root.Org, User: h.p.User.Login, Used: &h.used,
		Stacks: h.openStacks, Signing: h.recordToken,
	}
	call.Current, call.Root = h.places(ask)
	if p.Calls() { // it can send what the process has got
		if err := h.recordOpened(ctx); err != nil {
			return wire.Answer{}, err
		}
	}
	value, err := h.s.opts.Providers.Open(ctx, p, call)
	if err != nil {
		return concerns(err)
	}
	h.saw = true
	secretsIn(value, false, h.plain)
	return wire.Answer{Value: &value}, nil
}

// places returns the environment whose definition opens a provider, and the one that was opened. The names in the question are
// believed only as far as the process has got these environments, because identity tokens contain them: a definition must
// contain what it is said to open, and the opened environment is the root, or what a definition without a name imports itself.
// Otherwise, both are the zero environment, which gets no tokens.
func (h *host) places(ask wire.OpenAsk) (current, root providers.Environment) {
	current, definition, ok := h.place(ask.Current)
	silent := h.root.Silent && current == providers.Of(*h.root.Environment) // only drafts are, which have an environment
	if !ok || silent || !bytes.Contains(definition, []byte("fn::open")) || !bytes.Contains(definition, []byte(ask.Provider)) {
		return providers.Environment{}, providers.Environment{}
	}
	if h.root.Environment != nil {
		return current, providers.Of(*h.root.Environment)
	}
	root, _, ok = h.place(ask.Root)
	if !ok || root != (providers.Environment{}) && !h.direct[ask.Root] {
		return providers.Environment{}, providers.Environment{}
	}
	return current, root
}

// place returns an environment that the process has got, by the name that the process knows, and its definition. The root
// without a name is the zero environment.
func (h *host) place(known string) (providers.Environment, []byte, bool) {
	if found, ok := h.named[known]; ok {
		return providers.Of(found.Environment), h.definitions[revisionKey{found.ID, found.Revision.Number}], true
	}
	switch e := h.root.Environment; {
	case e == nil:
		return providers.Environment{}, []byte(h.root.Definition), known == "" || known == anonymous
	case known == name(e):
		return providers.Of(*e), []byte(h.root.Definition), true
	}
	return providers.Environment{}, nil, false
}

// anonymous is the name of a definition without a name for the process.
const anonymous = "<yaml>"

// recordOpened records the environments whose values a provider can send elsewhere.
func (h *host) recordOpened(ctx context.Context) error {
	list := h.unrecorded()
	if len(list) == 0 {
		return nil
	}
	err := h.s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return h.record(ctx, tx, list) })
	if err != nil {
		return unrecorded(err)
	}
	h.markRecorded(list)
	return nil
}

// recordToken records an identity token that is about to be signed.
func (h *host) recordToken(ctx context.Context, t providers.Token) error {
	err := h.s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return audit.RecordRead(ctx, tx, audit.Read{
			OrgID: h.root.Org.ID, Action: audit.EnvironmentToken, DeploymentID: h.p.DeploymentID,
			Subject: audit.Subject{Kind: "environment", ID: t.Environment.ID, Name: h.root.Org.Name + "/" + t.Environment.String()},
			Name:    t.Audience + " as " + t.Subject,
		})
	})
	if err != nil {
		return unrecorded(err)
	}
	return nil
}

package opening

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// host answers what a process asks during one evaluation. It is used by one goroutine.
type host struct {
	s    *Service
	p    identity.Principal
	root Root
	need store.EnvironmentPermission // on every imported environment
	key  *environments.Key           // of the root, if it is known

	// imports are what names mean during this evaluation. A tag that is moved meanwhile changes nothing.
	imports map[environments.Reference]wire.Answer
	// definitions are those of the imports, each once although several names can mean one revision.
	definitions map[revisionKey][]byte
	size        int // of the definitions in bytes
	// named are the imports, by the names that the process knows, without their definitions.
	named map[string]environments.Found
	keys  map[string]*environments.Key

	folder    *environments.Folder     // whose definitions take the place of stored ones, or nil
	outside   []environments.Reference // imports that are not in a closed folder
	encrypted bool                     // the definition contained plaintext secrets

	op    wire.Op             // of the request
	saw   bool                // the process has got secrets, or outputs of stacks
	plain map[string]struct{} // secrets that the process has got
	// outputs are those of stacks, by project/name.
	outputs map[string]wire.Value
	// direct are the names of the environments that the root imports.
	direct map[string]bool
	// recorded are the revisions that the audit log has.
	recorded map[revisionKey]bool
	used     providers.Usage
}

// revisionKey identifies a revision of an environment.
type revisionKey struct {
	environmentID string
	number        int64
}

// maxImported is the maximum size of the different definitions that one evaluation imports, in bytes.
const maxImported = 32 << 20

// importedTooMuch is the answer beyond [maxImported].
var importedTooMuch = wire.Answer{Error: fmt.Sprintf("the imported environments have definitions of more than %d MiB in all: import fewer, or smaller ones", maxImported>>20)}

func (s *Service) hostFor(p identity.Principal, root Root, need store.EnvironmentPermission) *host {
	return &host{
		s: s, p: p, root: root, need: need,
		imports: map[environments.Reference]wire.Answer{}, definitions: map[revisionKey][]byte{},
		named: map[string]environments.Found{}, keys: map[string]*environments.Key{},
		plain: map[string]struct{}{}, outputs: map[string]wire.Value{}, direct: map[string]bool{}, recorded: map[revisionKey]bool{},
	}
}

// owner returns the organization and the caller that the evaluation belongs to. Without a caller, the organization is both.
func (h *host) owner() evaluator.Owner {
	return evaluator.Owner{Organization: h.root.Org.ID, Caller: cmp.Or(h.p.User.ID, h.p.TokenID, h.p.JobID, h.root.Org.ID)}
}

// secret reports whether the evaluation may see secrets.
func (h *host) secret() bool { return h.need >= store.OpenEnvironment }

// evaluates reports whether the caller is the job of a policy evaluation. No server masks its log: its runner does, with the
// secrets among the values.
func (h *host) evaluates() bool { return h.p.Kind == identity.KindJob && h.p.DeploymentID == "" }

// concerns returns the answer for an error that concerns the definition, and every other error.
func concerns(err error) (wire.Answer, error) {
	switch fault.KindOf(err) {
	case fault.KindInvalid, fault.KindForbidden, fault.KindNotFound, fault.KindConflict, fault.KindTooLarge, fault.KindGone, fault.KindDamaged:
		message := err.Error()
		if f, ok := errors.AsType[*fault.Error](err); ok {
			message = f.Message // without what the server was doing
		}
		return wire.Answer{Error: message}, nil
	default:
		return wire.Answer{}, err
	}
}

// Environment implements [evaluator.Host]. All imports belong to the organization of the root, also those of imports.
func (h *host) Environment(ctx context.Context, ask wire.EnvironmentAsk) (wire.Answer, error) {
	answer, err := h.environment(ctx, ask)
	if err == nil && answer.Environment != nil && ask.Root {
		h.direct[answer.Environment.Name] = true
	}
	return answer, err
}

func (h *host) environment(ctx context.Context, ask wire.EnvironmentAsk) (wire.Answer, error) {
	if h.p.Kind == "" { // without a caller, a definition is only rewritten
		return wire.Answer{Error: "this request imports nothing"}, nil
	}
	ref, err := environments.ParseReference(ask.Name)
	if err != nil {
		return concerns(err)
	}
	if other, ok := h.root.Overrides[ref]; ok {
		if err := h.mayReplace(ctx, ask); err != nil {
			return concerns(err)
		}
		ref = other
	}
	if known, ok := h.imports[ref]; ok {
		return known, nil
	}
	if h.folder != nil {
		if answer, done := h.inFolder(ref); done {
			h.imports[ref] = answer
			return answer, nil
		}
	}
	if h.size >= maxImported { // before another one is read
		return importedTooMuch, nil
	}
	found, err := h.s.opts.Environments.Revision(ctx, h.p, h.need, h.root.Org.Name, ref)
	if err == nil && found.OrgID != h.root.Org.ID { // the organization's name was given to another one meanwhile
		err = h.p.NoEnvironment(h.root.Org.Name, ref.Project, ref.Name)
	}
	if err != nil {
		answer, err := concerns(err)
		if err == nil {
			h.imports[ref] = answer
		}
		return answer, err
	}
	known := name(&found.Environment)
	if ref.Version != "" && ref.Version != store.LatestVersion {
		known += "@" + strconv.FormatInt(found.Revision.Number, 10)
	}
	definition, err := h.keep(ctx, &found)
	if err != nil {
		return concerns(err)
	}
	answer := wire.Answer{Environment: &wire.EnvironmentAnswer{Name: known, Definition: definition}}
	h.imports[ref], h.named[known] = answer, found
	return answer, nil
}

// mayReplace returns an error unless the caller may change what the importing environment imports. Its providers act for it with
// values of its imports, so a caller who may only open it must not choose these. The evaluator keeps the value of an import by
// the name that is written, also for other importers: so they get an error, and not what they would import otherwise.
func (h *host) mayReplace(ctx context.Context, ask wire.EnvironmentAsk) error {
	if ask.Root {
		return nil // the caller has written the definition
	}
	importer, ok := h.named[ask.Importer]
	if !ok {
		return fault.Invalid("the definition does not import this environment")
	}
	_, err := h.s.opts.Environments.Find(ctx, h.p, store.WriteEnvironment, h.root.Org.Name, importer.Project, importer.Name)
	if fault.KindOf(err) == fault.KindForbidden {
		err = fault.Forbidden("only callers with the permission \"write\" on environment %s may replace what it imports", importer.Ref())
	}
	return err
}

// keep moves the definition of a revision to those that the evaluation keeps.
func (h *host) keep(ctx context.Context, found *environments.Found) ([]byte, error) {
	text := found.Revision.Definition
	found.Revision.Definition = ""
	key := revisionKey{found.ID, found.Revision.Number}
	if kept, ok := h.definitions[key]; ok {
		return kept, nil
	}
	// What is kept, and the message with it.
	if err := budget.Of(ctx).Take(ctx, 2*int64(len(text))); err != nil {
		return nil, err
	}
	h.definitions[key] = []byte(text)
	h.size += len(text)
	return h.definitions[key], nil
}

// Encrypt implements [evaluator.Host].
func (h *host) Encrypt(_ context.Context, ask wire.EncryptAsk) (wire.Answer, error) {
	if h.key == nil {
		return wire.Answer{Error: "secrets cannot be encrypted here"}, nil
	}
	h.encrypted = true
	return wire.Answer{Bytes: h.key.Encrypt(ask.Plaintext)}, nil
}

// Decrypt implements [evaluator.Host].
func (h *host) Decrypt(ctx context.Context, ask wire.DecryptAsk) (wire.Answer, error) {
	if !h.secret() {
		return wire.Answer{Error: "this evaluation sees no secrets"}, nil
	}
	key, err := h.keyOf(ctx, ask)
	if err != nil {
		return concerns(err)
	}
	plain, err := key.Decrypt(ask.Ciphertext)
	if err != nil {
		return concerns(err)
	}
	h.saw = true
	add(string(plain), true, h.plain)
	return wire.Answer{Bytes: plain}, nil
}

// keyOf returns the key of an environment that the process has got, or of the root.
func (h *host) keyOf(ctx context.Context, ask wire.DecryptAsk) (*environments.Key, error) {
	if ask.Root {
		if h.key == nil && h.root.Environment == nil {
			return nil, fault.Invalid("only a stored environment can contain ciphertexts; import the environment instead")
		}
		if h.key == nil {
			var err error
			if h.key, err = h.s.opts.Environments.Key(ctx, *h.root.Environment); err != nil {
				return nil, err
			}
		}
		return h.key, nil
	}
	if key := h.keys[ask.Environment]; key != nil {
		return key, nil
	}
	found, ok := h.named[ask.Environment]
	if !ok {
		return nil, fault.Invalid("the definition does not import this environment")
	}
	key, err := h.s.opts.Environments.Key(ctx, found.Environment)
	if err == nil {
		h.keys[ask.Environment] = key
	}
	return key, err
}

// opened are the environments whose values an evaluation contains.
func (h *host) opened() []opened {
	var list []opened
	if e := h.root.Environment; e != nil {
		list = append(list, opened{*e, h.root.Revision, h.root.Draft})
	}
	for _, f := range h.named {
		list = append(list, opened{f.Environment, f.Revision.Number, false})
	}
	// In a fixed order, because each is a row that another transaction can write, too.
	slices.SortFunc(list, func(a, b opened) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.revision, b.revision))
	})
	return slices.CompactFunc(list, func(a, b opened) bool { return a.ID == b.ID && a.revision == b.revision })
}

// opened is a revision of an environment.
type opened struct {
	store.Environment
	revision int64
	draft    bool
}

func (o opened) version() string {
	version := "revision " + strconv.FormatInt(o.revision, 10)
	if o.draft {
		return "a draft that changes " + version
	}
	return version
}

// maxText is the maximum length of a text of the evaluator in an error.
const maxText = 2000

func oneLine(text string) string { return termtext.OneLine(text, maxText) }

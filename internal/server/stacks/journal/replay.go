package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"time"

	"workflowagent/internal/server/stacks/rawjson"
)

// Options are the options of [Replay]. All except Hold are written to the manifest of the state.
type Options struct {
	Time          time.Time
	PulumiVersion string
	Hold          Hold // reserves memory for the kept and added parts of entries
}

// Replay returns the state that results from entries, in their order of arrival. The result shares
// memory with the base, which Replay does not change. Replay copies the parts of entries that it
// keeps, so that a caller can read a long journal in pieces.
func Replay(base *Deployment, entries iter.Seq2[Entry, error], o Options) (*Deployment, error) {
	r := newReplayer(base, o)
	if err := r.addAll(entries); err != nil {
		return nil, err
	}
	d := r.deployment()
	return d, r.kept.err
}

// CheckMigrations returns an error if a [StateMigration] entry in added cannot follow the stored
// entries. [Progress] cannot know, because the reasons are in the resources of the base. Replays do
// not repeat this check.
func CheckMigrations(base *Deployment, stored iter.Seq2[Entry, error], added []Entry, o Options) error {
	r := newReplayer(base, o)
	if err := r.addAll(stored); err != nil {
		return err
	}
	r.checks = true
	for i := range added {
		if err := r.add(&added[i]); err != nil {
			return err
		}
	}
	return nil
}

type replayer struct {
	options  Options
	checks   bool // whether to check migrations
	base     *Deployment
	progress *Progress
	kept     keeper

	added    []addition       // resources of the journal, in their order
	replaced map[int64][]byte // states of resources of the base, by index
	deleted  map[int64]bool   // resources of the base to delete, by index
	pending  map[int64]bool   // resources of the base to replace, by index

	begun      map[int64]int // index in begins by operation, of unfinished operations
	begins     [][]byte      // operations; nil once finished
	extensions []Member

	refreshed   bool
	byteStrings bool
}

// addition is a resource that the journal adds.
type addition struct {
	state           []byte
	delete, pending bool
}

func newReplayer(base *Deployment, o Options) *replayer {
	r := &replayer{options: o, base: base, progress: NewProgress(len(base.Resources)), kept: keeper{hold: o.Hold}}
	r.reset()
	return r
}

func (r *replayer) addAll(entries iter.Seq2[Entry, error]) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		if err := r.add(&e); err != nil {
			return err
		}
	}
	return nil
}

// reset clears the fields that refer to the base.
func (r *replayer) reset() {
	r.added, r.begins, r.extensions = nil, nil, nil
	r.replaced, r.deleted, r.pending = map[int64][]byte{}, map[int64]bool{}, map[int64]bool{}
	r.begun = map[int64]int{}
}

func (r *replayer) add(e *Entry) error {
	if err := r.progress.check(e); err != nil {
		return err
	}
	r.byteStrings = r.byteStrings || e.RequiresByteString
	r.kept.take(perEntry)
	switch e.Kind {
	case Begin:
		r.begin(e)
	case Success:
		r.succeed(e)
	case RefreshSuccess:
		r.finish(e)
		r.refreshed = true
		r.replace(e)
	case Failure:
		r.finish(e)
	case Outputs:
		r.replace(e)
	case Write:
		base, err := parseDeployment(r.kept.keep(e.NewSnapshot), r.options.Hold)
		if err != nil {
			return err
		}
		r.base = base
	case SecretsManager:
		r.setSecretsProvider(e.SecretsProvider)
	case Snippets:
		r.base = r.base.with("snippets", r.kept.keep(e.Snippets))
	case ExtensionParameterize:
		r.extensions = append(r.extensions, Member{string(e.ExtensionRef[1 : len(e.ExtensionRef)-1]), r.kept.keep(e.Extension)})
	case RebuiltBaseState:
		r.base = r.deployment()
		r.reset()
	case StateMigration:
		if err := r.migrate(e); err != nil {
			return err
		}
	}
	r.progress.apply(e, &undoLog{})
	if r.checks && e.Kind == StateMigration && r.kept.err == nil {
		return r.checkResult(e)
	}
	return r.kept.err
}

func (r *replayer) begin(e *Entry) {
	r.finish(e)
	r.begun[e.OperationID] = len(r.begins)
	r.begins = append(r.begins, r.kept.keep(e.Operation))
}

func (r *replayer) finish(e *Entry) {
	if i, ok := r.begun[e.OperationID]; ok {
		r.kept.drop(r.begins[i])
		r.begins[i] = nil
		delete(r.begun, e.OperationID)
	}
}

func (r *replayer) succeed(e *Entry) {
	r.finish(e)
	r.refreshed = r.refreshed || e.IsRefresh
	self := len(r.added)
	if e.State != nil {
		r.added = append(r.added, addition{state: r.keep(e)})
	}
	of := func(operation int64) *addition {
		if e.State != nil && operation == e.OperationID {
			return &r.added[self]
		}
		return &r.added[r.progress.operations[operation]]
	}
	if e.DeleteOld != nil {
		r.deleted[*e.DeleteOld] = true
	}
	if e.DeleteNew != nil {
		of(*e.DeleteNew).delete = true
	}
	if e.PendingReplacementOld != nil {
		r.pending[*e.PendingReplacementOld] = true
	}
	if e.PendingReplacementNew != nil {
		of(*e.PendingReplacementNew).pending = true
	}
}

// replace replaces the states of resources in place. The progress records removed resources.
func (r *replayer) replace(e *Entry) {
	if e.State == nil {
		return
	}
	if e.RemoveOld != nil {
		r.replaced[*e.RemoveOld] = r.keep(e)
	}
	if e.RemoveNew != nil {
		r.added[r.progress.operations[*e.RemoveNew]] = addition{state: r.keep(e)}
	}
}

// keep returns a copy of an entry's state. If the state is unchanged, it returns the base's bytes.
func (r *replayer) keep(e *Entry) []byte {
	if e.RemoveOld != nil && *e.RemoveOld < int64(len(r.base.Resources)) {
		if old := r.base.Resources[*e.RemoveOld]; bytes.Equal(old, e.State) {
			return old
		}
	}
	return r.kept.keep(e.State)
}

// setSecretsProvider sets the secrets provider. If the provider is equal to the base's, the base's
// provider remains, because it can contain members that the client does not know.
func (r *replayer) setSecretsProvider(provider []byte) {
	if provider == nil {
		return
	}
	old := r.base.Member("secrets_providers")
	if old != nil && textOf(rawjson.Member(old, "type")) == textOf(rawjson.Member(provider, "type")) &&
		bytes.Equal(rawjson.Member(old, "state"), rawjson.Member(provider, "state")) {
		return
	}
	r.base = r.base.with("secrets_providers", r.kept.keep(provider))
}

// deployment returns the state after the entries so far.
func (r *replayer) deployment() *Deployment {
	resources := r.resources()
	operations := r.operations()
	features := features{}
	for _, resource := range resources {
		features.add(resource)
	}
	for _, operation := range operations {
		features.add(rawjson.Member(operation, "resource"))
	}
	features.when(r.byteStrings && len(resources)+len(operations) > 0, "byteString")
	if r.refreshed {
		dropDangling(resources)
	}
	snippets := r.base.Member("snippets")
	features.when(!empty(snippets), "snippets-prototype")
	if aliases := aliasesOf(resources, &r.kept); len(aliases.current) > 0 {
		for i, resource := range resources {
			resources[i] = aliases.resource(resource)
		}
		if snippets != nil {
			snippets = aliases.snippets(snippets)
		}
	}
	d := &Deployment{
		Version: features.version(), Features: features.names(),
		Members: slices.Clone(r.base.Members), Resources: resources,
	}
	d.setMember("manifest", manifest(r.options))
	d.setMember("pending_operations", list(operations))
	d.setMember("snippets", snippets)
	d.setMember("extensions", r.allExtensions())
	return d
}

// resources returns the journal's resources and the remaining resources of the base.
func (r *replayer) resources() [][]byte {
	removed := make(map[int]bool, len(r.progress.removedNew))
	for operation := range r.progress.removedNew {
		removed[r.progress.operations[operation]] = true
	}
	out := make([][]byte, 0, r.progress.Resources())
	for i, a := range r.added {
		if !removed[i] {
			out = append(out, flagged(a.state, a.delete, a.pending))
		}
	}
	for i, resource := range r.base.Resources {
		i := int64(i)
		if _, ok := r.progress.removedOld[i]; ok {
			continue
		}
		if state, ok := r.replaced[i]; ok {
			out = append(out, state)
		} else {
			out = append(out, flagged(resource, r.deleted[i], r.pending[i]))
		}
	}
	return out
}

func flagged(resource []byte, deleted, pending bool) []byte {
	if deleted {
		resource = setTrue(resource, "delete")
	}
	if pending {
		resource = setTrue(resource, "pendingReplacement")
	}
	return resource
}

// operations returns the unfinished operations, and the base's operations that create resources.
// The latter remain until a user resolves them, because their resources might exist.
func (r *replayer) operations() [][]byte {
	var out [][]byte
	for _, operation := range r.begins {
		if operation != nil {
			out = append(out, operation)
		}
	}
	for operation := range rawjson.Elements(r.base.Member("pending_operations")) {
		if textOf(rawjson.Member(operation, "type")) == "creating" {
			out = append(out, operation)
		}
	}
	return out
}

// allExtensions returns the extensions of the base and the journal. If both have an extension, the
// base's extension takes precedence.
func (r *replayer) allExtensions() []byte {
	base := r.base.Member("extensions")
	if len(r.extensions) == 0 {
		return base
	}
	var all members
	for _, e := range r.extensions {
		all.set(e.Name, e.Value)
	}
	for name, value := range rawjson.Members(base) {
		all.set(name, value)
	}
	var out []byte
	for _, m := range all.list {
		out = append(append(append(append(out, `,"`...), m.Name...), `":`...), m.Value...)
	}
	out[0] = '{'
	return append(out, '}')
}

func manifest(o Options) []byte {
	magic := ""
	if o.PulumiVersion != "" {
		sum := sha256.Sum256([]byte(o.PulumiVersion))
		magic = hex.EncodeToString(sum[:])
	}
	return encode(map[string]string{"time": o.Time.Format(time.RFC3339Nano), "magic": magic, "version": o.PulumiVersion})
}

// list returns a JSON array, or nil if there are no elements.
func list(elements [][]byte) []byte {
	if len(elements) == 0 {
		return nil
	}
	return append(append([]byte("["), bytes.Join(elements, []byte(","))...), ']')
}

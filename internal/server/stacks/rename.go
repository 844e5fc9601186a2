package stacks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// renameMemory returns the memory that a rename uses, in bytes. A rename decodes one resource at a
// time.
func renameMemory(st *states.State) int64 {
	const perValue, perResource = 256, 64
	largest := int64(0)
	for r := range rawjson.Elements(rawjson.Member(st.Deployment, "resources")) {
		largest = max(largest, countValues(r))
	}
	pending := countValues(rawjson.Member(st.Deployment, "pending_operations"))
	return 3*int64(len(st.Deployment)) + perResource*st.Resources + perValue*(largest+pending)
}

// countValues returns an upper bound for the number of values in a JSON text.
func countValues(raw []byte) int64 {
	return int64(bytes.Count(raw, []byte(",")) + bytes.Count(raw, []byte("{")) + bytes.Count(raw, []byte("[")))
}

// Rename changes a stack's name, project or both; "" keeps the current value. It also rewrites the
// names in the stack's state. Otherwise, the next update would replace every resource.
func (s *Service) Rename(ctx context.Context, p identity.Principal, st store.Stack, newName, newProject string) (store.Update, error) {
	newName = cmp.Or(newName, st.Name)
	newProject = cmp.Or(newProject, st.Project)
	if newName == st.Name && newProject == st.Project {
		return store.Update{}, fault.Invalid("No rename to apply.")
	}
	if err := checkName("stack", newName); err != nil {
		return store.Update{}, err
	}
	if err := checkName("project", newProject); err != nil {
		return store.Update{}, err
	}
	if err := s.requireFree(ctx, st); err != nil {
		return store.Update{}, err
	}
	old, err := s.Export(ctx, st.ID)
	if err != nil {
		return store.Update{}, err
	}
	var state *states.State
	if !old.Empty() {
		if err := budget.Of(ctx).Take(ctx, renameMemory(old)); err != nil {
			return store.Update{}, err
		}
		r := renamer{oldStack: st.Name, oldProject: st.Project, newStack: newName, newProject: newProject, org: st.OrgName}
		if state, err = r.state(old); err != nil {
			return store.Update{}, malformed(st, err)
		}
	}
	u, err := s.replaceState(ctx, p, st.ID, st.Scope(), KindRename, state, func(tx *store.Tx, cur *store.Stack) error {
		if cur.Version != st.Version+1 {
			return fault.Conflict("the stack changed while it was being renamed; try again")
		}
		cur.Name, cur.Project = newName, newProject
		if err := tx.RenameStack(cur.ID, newProject, newName); err != nil {
			return err
		}
		detail := map[string]any{"to": newProject + "/" + newName}
		if err := audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StackRenamed, Subject: audit.Stack(st), Detail: detail}); err != nil {
			return err
		}
		if newProject != st.Project {
			if err := grants.Admit(tx, p, *cur, newProject, nil, time.Time{}); err != nil {
				return err
			}
		}
		return tx.SetStackTag(cur.ID, "pulumi:project", newProject)
	})
	return u, store.IfConflict(err, fault.Conflict("stack '%s/%s/%s' already exists", st.OrgName, newProject, newName))
}

// requireFree returns an error if an update holds a stack as the caller has read it. It first ends an update
// whose lease has lapsed. Afterwards, whatever changes the stack's state also changes its version, so that
// the caller notices it. requireFree does nothing if the version differs already.
func (s *Service) requireFree(ctx context.Context, st store.Stack) error {
	if st.ActiveUpdate == "" {
		return nil
	}
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		cur, err := tx.Stack(st.ID)
		if err != nil || cur.Version != st.Version {
			return err
		}
		if err := s.free(tx, &cur, now); err != nil {
			return err
		}
		return tx.UpdateStack(cur)
	})
}

// malformed returns the error for a state that a client imported and whose names cannot be rewritten.
func malformed(st store.Stack, err error) error {
	return fault.Wrap(fault.KindInvalid, err, "the state of stack '%s' contains malformed resources, operations or secrets providers; export the state, repair it, and import it", st.Ref())
}

// rootStackType is the type of the resource that represents the stack. The resource's name is
// PROJECT-STACK.
const rootStackType = "pulumi:pulumi:Stack"

// resourceReference is the signature of a resource reference in serialized properties.
const (
	signatureKey      = "4dabf18193072939515e22adb298388d"
	resourceReference = "5cf8f73096256a8f31e491e813e4eb8e"
)

type renamer struct {
	oldStack, oldProject, newStack, newProject, org string
}

// urn rewrites a URN of the form urn:pulumi:STACK::PROJECT::TYPE::NAME if it belongs to the stack.
func (r renamer) urn(u string) string {
	rest, ok := strings.CutPrefix(u, "urn:pulumi:"+r.oldStack+"::"+r.oldProject+"::")
	if !ok {
		return u
	}
	if strings.HasPrefix(rest, rootStackType+"::") {
		rest = rootStackType + "::" + r.newProject + "-" + r.newStack
	}
	return "urn:pulumi:" + r.newStack + "::" + r.newProject + "::" + rest
}

func (r renamer) state(old *states.State) (*states.State, error) {
	deployment, err := r.deployment(old.Deployment)
	if err != nil {
		return nil, err
	}
	body, err := (&states.State{Schema: old.Schema, Features: old.Features, Deployment: deployment}).MarshalJSON()
	if err != nil {
		return nil, err
	}
	return states.Parse(body, nil)
}

func (r renamer) deployment(raw []byte) ([]byte, error) {
	var d map[string]json.RawMessage
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	if err := edit(d, "resources", func(list []json.RawMessage) ([]json.RawMessage, error) {
		for i := range list {
			var err error
			if list[i], err = r.resource(list[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	}); err != nil {
		return nil, err
	}
	if err := edit(d, "pending_operations", func(list []map[string]json.RawMessage) ([]map[string]json.RawMessage, error) {
		for _, op := range list {
			if op["resource"] == nil {
				continue
			}
			var err error
			if op["resource"], err = r.resource(op["resource"]); err != nil {
				return nil, err
			}
		}
		return list, nil
	}); err != nil {
		return nil, err
	}
	if err := edit(d, "secrets_providers", r.secretsProvider); err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// secretsProvider changes the stack name that clients use to decrypt a state's secrets.
func (r renamer) secretsProvider(p map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	if string(p["type"]) != `"service"` {
		return p, nil
	}
	err := edit(p, "state", func(s map[string]any) (map[string]any, error) {
		s["owner"], s["project"], s["stack"] = r.org, r.newProject, r.newStack
		return s, nil
	})
	return p, err
}

// resource rewrites the names in a resource and in its properties' resource references.
func (r renamer) resource(raw json.RawMessage) (json.RawMessage, error) {
	var res map[string]json.RawMessage
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, err
	}
	one := func(u string) (string, error) { return r.urn(u), nil }
	many := func(list []string) ([]string, error) {
		for i := range list {
			list[i] = r.urn(list[i])
		}
		return list, nil
	}
	for _, key := range []string{"urn", "parent", "deletedWith", "viewOf"} {
		if err := edit(res, key, one); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"dependencies", "replaceWith", "aliases"} {
		if err := edit(res, key, many); err != nil {
			return nil, err
		}
	}
	if err := edit(res, "propertyDependencies", func(deps map[string][]string) (map[string][]string, error) {
		for _, list := range deps {
			for i := range list {
				list[i] = r.urn(list[i])
			}
		}
		return deps, nil
	}); err != nil {
		return nil, err
	}
	// A provider reference consists of a URN, "::" and an id.
	if err := edit(res, "provider", func(ref string) (string, error) {
		if i := strings.LastIndex(ref, "::"); i > 0 {
			return r.urn(ref[:i]) + ref[i:], nil
		}
		return ref, nil
	}); err != nil {
		return nil, err
	}
	for _, key := range []string{"inputs", "outputs", "replacementTrigger"} {
		if !strings.Contains(string(res[key]), resourceReference) {
			continue
		}
		var v any
		dec := json.NewDecoder(strings.NewReader(string(res[key])))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		out, err := json.Marshal(r.property(v))
		if err != nil {
			return nil, err
		}
		res[key] = out
	}
	return json.Marshal(res)
}

func (r renamer) property(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = r.property(v[i])
		}
	case map[string]any:
		if v[signatureKey] == resourceReference {
			if u, ok := v["urn"].(string); ok {
				v["urn"] = r.urn(u)
			}
			return v
		}
		for k := range v {
			v[k] = r.property(v[k])
		}
	}
	return v
}

// edit changes one member of an object in place. It ignores absent and null members.
func edit[T any](obj map[string]json.RawMessage, key string, change func(T) (T, error)) error {
	raw, ok := obj[key]
	if !ok || string(raw) == "null" {
		return nil
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("member %q: %w", key, err)
	}
	v, err := change(v)
	if err != nil {
		return err
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("member %q: %w", key, err)
	}
	obj[key] = out
	return nil
}

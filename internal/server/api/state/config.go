package state

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

func (s *stackRoutes) config(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if st.Config == "" {
		return noConfig(st)
	}
	return web.WriteRaw(w, r, http.StatusOK, []byte(st.Config))
}

func noConfig(st store.Stack) error {
	return fault.NotFound("stack '%s' has no stored configuration", st.Ref())
}

// maxStackConfig bounds the size of a stack's configuration (names and wrapped keys) in bytes,
// because every read of the stack includes it.
const maxStackConfig = 64 << 10

// parsedConfig is a stack's configuration: names and wrapped keys. Values are in an environment or in a file of the client.
type parsedConfig struct {
	text        string // as it is stored
	environment string // that has the values, or ""
}

func parseConfig(raw json.RawMessage) (parsedConfig, error) {
	var c struct {
		Environment     string `json:"environment"`
		SecretsProvider string `json:"secretsProvider,omitempty"`
		EncryptedKey    string `json:"encryptedKey,omitempty"`
		EncryptionSalt  string `json:"encryptionSalt,omitempty"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return parsedConfig{}, request.InvalidJSON(err)
	}
	out, err := json.Marshal(c)
	if err != nil {
		return parsedConfig{}, fmt.Errorf("encoding a stack's configuration: %w", err)
	}
	if len(out) > maxStackConfig {
		return parsedConfig{}, fault.New(fault.KindTooLarge, "a stack's configuration has more than %d bytes", maxStackConfig)
	}
	return parsedConfig{string(out), c.Environment}, nil
}

// withEnvironment lets a new stack create the environment that has its configuration: one that it manages, or the one that its
// configuration names, unless that exists.
func (s *stackRoutes) withEnvironment(ctx context.Context, p identity.Principal, n *stacks.NewStack, named string, managed bool) (*store.Environment, error) {
	var created store.Environment
	project, name := n.Project, n.Name
	switch {
	case managed && named != "":
		return nil, fault.Invalid("a stack has its configuration in an environment that it manages, or in another one; omit one of createManagedEnvironment and config.environment")
	case named != "":
		ref, err := s.checkEnvironment(ctx, p, n.Org.Name, named)
		if err == nil || fault.KindOf(err) != fault.KindNotFound || ref.Version != "" {
			return &created, err
		}
		project, name = ref.Project, ref.Name
	case !managed:
		return &created, nil
	}
	c, err := s.environments.NewConfiguration(ctx, p, n.Org, project, name, managed)
	if err != nil {
		return nil, err
	}
	n.Also = func(tx *store.Tx, st store.Stack) (err error) {
		created, err = s.environments.CreateConfiguration(ctx, tx, p, st, *c)
		return err
	}
	return &created, nil
}

// checkEnvironment returns an error unless a caller may read the environment that is to have a stack's configuration.
func (s *stackRoutes) checkEnvironment(ctx context.Context, p identity.Principal, org, name string) (environments.Reference, error) {
	ref, err := environments.ParseReference(name)
	if err == nil {
		_, err = s.environments.Revision(ctx, p, store.ReadEnvironment, org, ref)
	}
	return ref, err
}

func (s *stackRoutes) setConfig(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var raw json.RawMessage
	if err := request.DecodeDocument(w, r, &raw); err != nil {
		return err
	}
	c, err := parseConfig(raw)
	if err == nil && c.environment != "" {
		_, err = s.checkEnvironment(r.Context(), web.Principal(r), st.OrgName, c.environment)
	}
	if err != nil {
		return err
	}
	if err := s.stacks.SetConfig(r.Context(), st, c.text); err != nil {
		return err
	}
	return web.WriteRaw(w, r, http.StatusOK, []byte(c.text))
}

func (s *stackRoutes) removeConfig(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if st.Config == "" {
		return noConfig(st)
	}
	return web.Done(w, s.stacks.SetConfig(r.Context(), st, ""))
}

package deployments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/imageref"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// StoredSettings are a stack's settings for clients. They contain secrets only as ciphertexts.
type StoredSettings struct {
	workflow.Settings
	Version int64  `json:"version,omitempty"`
	Source  string `json:"source,omitempty"`
	// Warnings are sentences about what the last change contained without effect.
	Warnings []string `json:"warnings,omitempty"`
}

var errNoSettings = fault.NotFound("this stack has no deployment settings")

// Settings returns the deployment settings of a stack.
func (s *Service) Settings(ctx context.Context, st store.Stack) (*StoredSettings, error) {
	var set *workflow.Settings
	var row store.DeploymentSettings
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		set, row, err = storedSettings(tx, st.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if set == nil {
		return nil, errNoSettings
	}
	return &StoredSettings{*set, row.Version, row.Source, row.Warnings}, nil
}

// storedSettings returns a stack's settings and their row, or nil if it has none.
func storedSettings(tx *store.Tx, stackID string) (*workflow.Settings, store.DeploymentSettings, error) {
	row, err := tx.DeploymentSettings(stackID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, row, nil
	}
	if err != nil {
		return nil, row, fmt.Errorf("reading deployment settings: %w", err)
	}
	set, err := workflow.ParseSettings([]byte(row.Document))
	return set, row, fault.While(err, "parsing the stored settings of stack %s", stackID)
}

// ReplaceSettings replaces a stack's settings. source names the kind of client.
func (s *Service) ReplaceSettings(ctx context.Context, p identity.Principal, st store.Stack, body []byte, source string) (*StoredSettings, error) {
	return s.changeSettings(ctx, p, st, source, workflow.Ignored(body), nil, func(*workflow.Settings) (*workflow.Settings, error) {
		return workflow.ParseSettings(body)
	})
}

// PatchSettings merges a patch into a stack's settings. It creates the settings if necessary.
func (s *Service) PatchSettings(ctx context.Context, p identity.Principal, st store.Stack, patch []byte, source string) (*StoredSettings, error) {
	return s.patchSettings(ctx, p, st, patch, source, nil)
}

// PatchReviewed is [Service.PatchSettings] for a patch of a version of the settings that the caller has read; 0 if there
// were none. If they have another version by now, it changes nothing and returns [ErrSettingsChanged].
func (s *Service) PatchReviewed(ctx context.Context, p identity.Principal, st store.Stack, patch []byte, source string, version int64) (*StoredSettings, error) {
	return s.patchSettings(ctx, p, st, patch, source, &version)
}

// ErrSettingsChanged means that others have stored settings since the caller read them.
var ErrSettingsChanged = fault.Conflict("the deployment settings have changed since you read them")

func (s *Service) patchSettings(ctx context.Context, p identity.Principal, st store.Stack, patch []byte, source string, expected *int64) (*StoredSettings, error) {
	return s.changeSettings(ctx, p, st, source, workflow.Ignored(patch), expected, func(old *workflow.Settings) (*workflow.Settings, error) {
		return workflow.MergeSettings(old, patch)
	})
}

// changeSettings stores settings. expected is the version that change is about, or nil if it can be any.
func (s *Service) changeSettings(ctx context.Context, p identity.Principal, st store.Stack, source string, warnings []string, expected *int64,
	change func(old *workflow.Settings) (*workflow.Settings, error),
) (*StoredSettings, error) {
	var out *StoredSettings
	wide := false // whether the transaction holds the organization
	write := func(tx *store.Tx) error {
		old, row, err := storedSettings(tx, st.ID)
		if err != nil {
			return err
		}
		if expected != nil && row.Version != *expected {
			return ErrSettingsChanged
		}
		if old != nil {
			// The audit entry must not name the secrets of earlier versions, which this encrypts again.
			if err := s.reseal(ctx, tx, st.ID, old, old); err != nil && fault.KindOf(err) != fault.KindInvalid {
				return err
			}
		}
		before, err := documentOf(old)
		if err != nil {
			return err
		}
		fresh, err := change(old)
		if err == nil {
			fresh.CleanTriggers()
			err = validate(fresh)
		}
		if err != nil {
			return fault.Invalid("%s", err)
		}
		if s.opts.Repositories != nil {
			if _, named := fresh.Triggers(); named && !wide {
				return errRepository
			}
			if err := s.opts.Repositories.Watch(tx, p, st, fresh); err != nil {
				return err
			}
		}
		// The option takes effect when another user, who may delete the stack, destroys it.
		if fresh.Option().DeleteAfterDestroy && (old == nil || !old.Option().DeleteAfterDestroy) {
			if err := p.Check(st, identity.DeleteStack); err != nil {
				return err
			}
		}
		if err := s.reseal(ctx, tx, st.ID, fresh, old); err != nil {
			return err
		}
		pinned, err := poolOf(tx, st.OrgID, fresh.AgentPoolID)
		if err != nil {
			return err
		}
		if pinned {
			// Queued jobs that have no pool can use this pool.
			if n, err := tx.AdoptQueuedJobs(st.ID, fresh.AgentPoolID); err != nil {
				return err
			} else if n > 0 {
				tx.Notify(pools.QueueTopic, fresh.AgentPoolID)
			}
		}
		doc, err := json.Marshal(fresh)
		if err != nil {
			return fmt.Errorf("encoding deployment settings: %w", err)
		}
		if len(doc) > len(row.Document) {
			if err := s.opts.Quota.AdmitText(tx, st.OrgID, int64(len(doc))); err != nil {
				return err
			}
		}
		row = store.DeploymentSettings{
			StackID: st.ID, Document: string(doc), Source: source, Version: row.Version + 1,
			PoolID: fresh.AgentPoolID, Warnings: warnings, UpdatedAt: tx.Now(),
		}
		out = &StoredSettings{*fresh, row.Version, row.Source, row.Warnings}
		queueChanged(tx, st.OrgID, st.ID)
		if err := tx.SaveDeploymentSettings(row); err != nil {
			return err
		}
		if err := joinGroup(tx, st, fresh.ConcurrencyGroup); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: st.OrgID, Action: audit.SettingsChanged, Subject: audit.Stack(st), Detail: map[string]any{"version": row.Version, "source": source, "keys": differ("", before, doc)},
		})
	}
	err := s.db.Write(ctx, st.Scope(), write)
	if errors.Is(err, errRepository) {
		wide = true
		err = s.db.Write(ctx, scope.Organization(st.OrgID).And(st.Scope()), write)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// errRepository means that a change of settings needs a wider scope than the stack's.
var errRepository = errors.New("the settings name a repository, which other stacks can watch too")

// ReadSettings returns the settings of a stack, or nil if it has none.
func (s *Service) ReadSettings(tx *store.Tx, stackID string) (*workflow.Settings, error) {
	set, _, err := storedSettings(tx, stackID)
	return set, err
}

// CopySettings gives a stack the settings of another, after change, in the caller's transaction. source
// is the kind of the client. The stack does not watch the repository in the settings.
func (s *Service) CopySettings(ctx context.Context, tx *store.Tx, from, to store.Stack, source string, change func(*workflow.Settings)) error {
	set, _, err := storedSettings(tx, from.ID)
	if err != nil {
		return err
	}
	if set == nil {
		return fault.NotFound("stack '%s' has no deployment settings", from.Ref())
	}
	if err := s.open(ctx, tx, from.ID, set); err != nil {
		return fmt.Errorf("copying the secrets of deployment settings: %w", err)
	}
	change(set)
	if err := s.seal(ctx, tx, to.ID, set); err != nil {
		return fmt.Errorf("copying the secrets of deployment settings: %w", err)
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encoding deployment settings: %w", err)
	}
	_, old, err := storedSettings(tx, to.ID)
	if err != nil {
		return err
	}
	queueChanged(tx, to.OrgID, to.ID)
	if err := joinGroup(tx, to, set.ConcurrencyGroup); err != nil {
		return err
	}
	return tx.SaveDeploymentSettings(store.DeploymentSettings{
		StackID: to.ID, Document: string(doc), Source: source, Version: old.Version + 1, PoolID: set.AgentPoolID, UpdatedAt: tx.Now(),
	})
}

func documentOf(set *workflow.Settings) ([]byte, error) {
	if set == nil {
		return []byte("{}"), nil
	}
	doc, err := json.Marshal(set)
	return doc, fault.While(err, "encoding deployment settings")
}

// unset are the values of members that say the same as no member.
var unset = []string{"", "null", "false", `""`, "[]", "0"}

// differ returns the paths of the members in which two JSON documents differ, without their values,
// which can be secrets.
func differ(path string, before, after []byte) []string {
	if bytes.Equal(before, after) || slices.Contains(unset, string(before)) && slices.Contains(unset, string(after)) {
		return nil
	}
	var a, b map[string]json.RawMessage
	isObject := func(raw []byte, into *map[string]json.RawMessage) bool {
		return len(raw) == 0 || json.Unmarshal(raw, into) == nil
	}
	if !isObject(before, &a) || !isObject(after, &b) {
		return []string{path}
	}
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var keys []string
	for _, name := range names {
		keys = append(keys, differ(strings.TrimPrefix(path+"."+name, "."), a[name], b[name])...)
	}
	return keys
}

// validate returns an error if the settings are invalid or name an unknown role. A role that is named
// in another way than by its id must not be ignored, because the job would have more rights.
func validate(set *workflow.Settings) error {
	role := set.Role()
	if c := set.OperationContext; role == "" && c != nil && c.Role != nil && c.Role.Name+c.Role.DefaultIdentifier != "" {
		return fmt.Errorf("operationContext.role: has no id: write {\"id\": \"ROLE\"}; the roles are %s", strings.Join(identity.Roles(), ", "))
	}
	if role != "" && !slices.Contains(identity.Roles(), role) {
		return fmt.Errorf("operationContext.role: this server has no role %q; the roles are %s", termtext.OneLine(role, 80), strings.Join(identity.Roles(), ", "))
	}
	if err := set.Validate(); err != nil {
		return err
	}
	if c := set.ExecutorContext; c != nil && c.ExecutorImage != nil && c.ExecutorImage.Reference != "" {
		if _, err := imageref.Parse(c.ExecutorImage.Reference); err != nil {
			return fmt.Errorf("executorContext.executorImage: %q is not the name of an image: %w", c.ExecutorImage.Reference, err)
		}
	}
	return nil
}

// poolOf returns an error if a pool does not exist. The id "" means the organization's default
// pool, which need not exist.
func poolOf(tx *store.Tx, orgID, id string) (pinned bool, err error) {
	if id == "" {
		return false, nil
	}
	_, err = tx.Pool(orgID, id)
	if errors.Is(err, store.ErrNotFound) {
		// The documentation of clients calls the value a pool, so users write a pool's name.
		pools, err := tx.Pools(orgID)
		if err != nil {
			return false, err
		}
		for _, p := range pools {
			if p.Name == id {
				return false, fault.Invalid("Invalid agent pool id: '%s' is the name of an agent pool: use its id, %s", termtext.OneLine(id, maxMessage), p.ID)
			}
		}
		return false, fault.Invalid("Invalid agent pool id: '%s' does not exist in this organization", termtext.OneLine(id, maxMessage))
	}
	return true, err
}

// DeleteSettings removes the settings of a stack.
func (s *Service) DeleteSettings(ctx context.Context, st store.Stack) error {
	err := s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		if err := tx.DeleteDeploymentSettings(st.ID); err != nil {
			return err
		}
		if err := tx.DeleteWatch(st.ID); err != nil {
			return err
		}
		if err := joinGroup(tx, st, ""); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.SettingsDeleted, Subject: audit.Stack(st)})
	})
	if errors.Is(err, store.ErrNotFound) {
		return errNoSettings
	}
	return fault.While(err, "deleting deployment settings")
}

// ForgetPool returns a settings document without its pool.
func ForgetPool(document string) (string, error) {
	set, err := workflow.ParseSettings([]byte(document))
	if err != nil {
		return "", err
	}
	set.AgentPoolID = ""
	doc, err := json.Marshal(set)
	return string(doc), fault.While(err, "encoding deployment settings")
}

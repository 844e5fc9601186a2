package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"workflowagent/internal/server/store"
)

// EveryPolicy is the key of a configuration that applies to all policies of a pack.
const EveryPolicy = "all"

// LevelKey is the member of a policy's configuration that has its level.
const LevelKey = "enforcementLevel"

// Required is a version of a pack that a stack must obey.
type Required struct {
	// EnabledPack is the version as a group enables it. Of several groups with the same pack, it is the one with the
	// newest version, and of those the one that was changed last.
	store.EnabledPack
	// Policies are the pack's policies with the levels that apply to the stack.
	Policies []store.PolicyLevel
	// PolicyConfig is the configuration of each policy, always with a level. Otherwise an environment of the pack could
	// switch a policy off.
	PolicyConfig map[string]json.RawMessage
	// Exceptions are those that apply to targets in the stack, by name, in the form of the client.
	Exceptions map[string]json.RawMessage
	// Covered are the policies whose level is advisory because of an exception for the whole stack.
	Covered []store.PolicyCover
}

// SetLevel changes the level of a policy. It reports whether the pack has the policy.
func (r *Required) SetLevel(policy, level string) (bool, error) {
	at := slices.IndexFunc(r.Policies, func(p store.PolicyLevel) bool { return p.Name == policy })
	if at < 0 {
		return false, nil
	}
	config := map[string]json.RawMessage{}
	if err := json.Unmarshal(r.PolicyConfig[policy], &config); err != nil {
		return false, fmt.Errorf("reading the configuration of policy %s: %w", policy, err)
	}
	var err error
	if config[LevelKey], err = json.Marshal(level); err != nil {
		return false, err
	}
	if r.PolicyConfig[policy], err = json.Marshal(config); err != nil {
		return false, err
	}
	r.Policies[at].Level = level
	return true, nil
}

// packsOf returns the packs that apply to a stack with a mode, by name, with the exceptions that apply to the stack.
func (s *Service) packsOf(ctx context.Context, st store.Stack, mode string) ([]Required, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Required, error) {
		list, err := PacksOf(tx, st, mode)
		if err == nil && mode == Preventative && s.hooks.Except != nil {
			err = s.hooks.Except(tx, st, list)
		}
		return list, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the policy packs of a stack: %w", err)
	}
	return out, nil
}

// PacksOf returns the packs that apply to a stack with a mode, by name. It runs one statement.
func PacksOf(tx *store.Tx, st store.Stack, mode string) ([]Required, error) {
	rows, err := tx.PacksOfStack(st.OrgID, st.ID, mode)
	if err != nil {
		return nil, err
	}
	var out []Required
	for _, row := range rows {
		r, err := required(row)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// required returns a pack with the levels that its configuration sets.
func required(row store.EnabledPack) (Required, error) {
	config, err := ConfigOf(row)
	if err != nil {
		return Required{}, err
	}
	r := Required{EnabledPack: row, PolicyConfig: map[string]json.RawMessage{}}
	maps.Copy(r.PolicyConfig, config)
	all, err := levelIn(r.PolicyConfig[EveryPolicy])
	if err != nil {
		return Required{}, err
	}
	for _, p := range row.Levels {
		config := map[string]json.RawMessage{}
		if raw, ok := r.PolicyConfig[p.Name]; ok {
			if err := json.Unmarshal(raw, &config); err != nil {
				return Required{}, fmt.Errorf("reading the configuration of policy %s: %w", p.Name, err)
			}
		}
		own, err := levelIn(r.PolicyConfig[p.Name])
		if err != nil {
			return Required{}, err
		}
		switch {
		case own != "":
			p.Level = own
		case all != "":
			p.Level = all
		}
		if config[LevelKey], err = json.Marshal(p.Level); err != nil {
			return Required{}, err
		}
		if r.PolicyConfig[p.Name], err = json.Marshal(config); err != nil {
			return Required{}, err
		}
		r.Policies = append(r.Policies, p)
	}
	return r, nil
}

// levelIn returns the level in a policy's configuration, or "".
func levelIn(raw json.RawMessage) (string, error) {
	var config map[string]json.RawMessage // and not a struct, which would accept other letter cases
	if len(raw) == 0 {
		return "", nil
	}
	if err := json.Unmarshal(raw, &config); err != nil || config[LevelKey] == nil {
		return "", err
	}
	var level string
	err := json.Unmarshal(config[LevelKey], &level)
	return level, err
}

package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/store"
)

// masker returns what masks the known secrets in the events of an update, nil
// when there are none. The answer is kept until the update ends.
func (s *Service) masker(ctx context.Context, u store.Update) (*redact.Set, error) {
	if u.DeploymentID == "" || s.hooks.KnownSecrets == nil {
		return nil, nil //nolint:nilnil // nothing to mask is an answer
	}
	if set, ok := s.maskers.Load(u.ID); ok {
		return set.(*redact.Set), nil //nolint:forcetypeassert // nothing else is stored
	}
	secrets, err := s.hooks.KnownSecrets(ctx, u.DeploymentID)
	if err != nil {
		return nil, fmt.Errorf("finding the secrets of a deployment: %w", err)
	}
	set := redact.New(secrets, redact.Options{})
	if !Status(u.Status).Finished() {
		s.maskers.Store(u.ID, set)
	}
	return set, nil
}

// maskEvent masks secrets in the strings of an event. Only an event that holds
// one is taken apart, and only its strings change, so it stays valid JSON.
func maskEvent(set *redact.Set, raw json.RawMessage) (json.RawMessage, error) {
	if set == nil || set.String(string(raw)) == string(raw) {
		return raw, nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("masking an event: %w", err)
	}
	out, err := json.Marshal(maskStrings(set, v))
	if err != nil {
		return nil, fmt.Errorf("masking an event: %w", err)
	}
	return out, nil
}

func maskStrings(set *redact.Set, v any) any {
	switch v := v.(type) {
	case string:
		return set.String(v)
	case []any:
		for i := range v {
			v[i] = maskStrings(set, v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = maskStrings(set, v[k])
		}
	}
	return v
}

package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/renameio/v2"

	"workflowagent/internal/server/store"
)

// Paths of the documents below the issuer's URL.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/.well-known/jwks"
)

// Configuration is the issuer's OpenID configuration.
type Configuration struct {
	Issuer        string   `json:"issuer"`
	KeysURL       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Scopes        []string `json:"scopes_supported"`
	Claims        []string `json:"claims_supported"`
}

// Configuration returns the issuer's OpenID configuration.
func (s *Service) Configuration() Configuration {
	return Configuration{
		Issuer: s.opts.URL, KeysURL: s.opts.URL + KeysPath,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
		Algorithms: []string{string(jose.RS256)}, Scopes: []string{"openid"},
		Claims: []string{
			"iss", "sub", "aud", "jti", "iat", "nbf", "exp", "org", "project", "stack", "stackId", "operation", "deployment", "scope",
			"trigger", "ref", "sha", "pull_request", "fork", "env", "current_env", "root_env", "trigger_user", "body_hash",
		},
	}
}

// CustomConfiguration is the OpenID configuration of the issuer at [Service.CustomURL]. Both issuers have the same keys.
func (s *Service) CustomConfiguration() Configuration {
	c := s.Configuration()
	c.Issuer = s.CustomURL()
	c.KeysURL = s.CustomURL() + KeysPath
	c.Claims = []string{
		"iss", "sub", "aud", "jti", "iat", "nbf", "exp", customClaim + "org", customClaim + "org_id", customClaim + "current_env",
		customClaim + "current_env_id", customClaim + "root_env", customClaim + "root_env_id", customClaim + "actor",
	}
	return c
}

// KeySet is a JSON web key set.
type KeySet struct {
	Keys []json.RawMessage `json:"keys"`
}

// KeySet returns the published keys.
func (s *Service) KeySet(ctx context.Context) (KeySet, error) {
	keys, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.SigningKey, error) { return tx.SigningKeys() })
	if err != nil {
		return KeySet{}, fmt.Errorf("reading the signing keys: %w", err)
	}
	set := KeySet{Keys: []json.RawMessage{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, json.RawMessage(k.PublicKey))
	}
	return set, nil
}

// Export writes the documents to a directory whose content is to be published at the issuer's URL.
// Each file is replaced as a whole. The keys are written first, so that no configuration names
// missing keys.
func (s *Service) Export(ctx context.Context, dir string) error {
	set, err := s.KeySet(ctx)
	if err != nil {
		return err
	}
	if len(set.Keys) == 0 {
		return errors.New("the server has no signing key yet: start it once")
	}
	for _, doc := range []struct {
		path    string
		content any
	}{
		{KeysPath, set},
		{CustomPath + KeysPath, set},
		{ConfigurationPath, s.Configuration()},
		{CustomPath + ConfigurationPath, s.CustomConfiguration()},
	} {
		text, err := json.MarshalIndent(doc.content, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding a document: %w", err)
		}
		path := filepath.Join(dir, filepath.FromSlash(doc.path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("exporting the documents: %w", err)
		}
		if err := renameio.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("exporting the documents: %w", err)
		}
	}
	return nil
}

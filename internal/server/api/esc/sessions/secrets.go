package sessions

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// maxSecrets is the number of secrets in one request.
const maxSecrets = 1000

// secretsBody contains secrets, and encrypted the same ones as they occur in definitions.
type secretsBody struct {
	Plaintexts  [][]byte `json:"plaintexts,omitempty"`
	Ciphertexts []string `json:"ciphertexts,omitempty"`
}

func (s *routes) secrets(w http.ResponseWriter, r *http.Request, need store.EnvironmentPermission) (store.Environment, secretsBody, error) {
	var body secretsBody
	e, err := s.environments.Find(r.Context(), web.Principal(r), need, web.Param(r, "org"), web.Param(r, "project"), web.Param(r, "environment"))
	if err == nil {
		err = request.DecodeDocument(w, r, &body)
	}
	if err == nil && max(len(body.Plaintexts), len(body.Ciphertexts)) > maxSecrets {
		err = fault.New(fault.KindTooLarge, "a request may contain at most %d secrets; send them in several requests", maxSecrets)
	}
	return e, body, err
}

func (s *routes) encryptSecrets(w http.ResponseWriter, r *http.Request) error {
	e, body, err := s.secrets(w, r, store.WriteEnvironment)
	if err != nil {
		return err
	}
	out, err := s.opening.Encrypt(r.Context(), e, body.Plaintexts)
	return web.Answer(w, r, map[string][]string{"ciphertexts": out}, err)
}

func (s *routes) decryptSecrets(w http.ResponseWriter, r *http.Request) error {
	e, body, err := s.secrets(w, r, store.OpenEnvironment)
	if err != nil {
		return err
	}
	out, err := s.opening.Decrypt(r.Context(), web.Principal(r), e, body.Ciphertexts)
	w.Header().Set("Cache-Control", "no-store")
	return web.Answer(w, r, map[string][][]byte{"plaintexts": out}, err)
}

package api

import (
	"encoding/base64"
	"net/http"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// secretRoutes encrypt and decrypt the secrets of stacks. Values are bytes, not
// text, in base64.
type secretRoutes struct{ stacks *stacks.Service }

func (s *secretRoutes) register(rt *Router) {
	rt.stack(http.MethodPost, stackPath+"/encrypt", needWrite, s.encrypt)
	rt.stack(http.MethodPost, stackPath+"/batch-encrypt", needWrite, s.batchEncrypt)
	rt.stack(http.MethodPost, stackPath+"/decrypt", needRead, s.decrypt)
	rt.stack(http.MethodPost, stackPath+"/batch-decrypt", needRead, s.batchDecrypt)
	rt.stack(http.MethodPost, stackPath+"/decrypt/log-decryption", needRead, s.logDecryption)
	rt.stack(http.MethodPost, stackPath+"/decrypt/log-batch-decryption", needRead, s.logDecryption)
}

func (s *secretRoutes) encrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Plaintext []byte `json:"plaintext"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	ct, err := s.stacks.Secrets().Encrypt(r.Context(), st.ID, body.Plaintext)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string][]byte{"ciphertext": ct})
}

func (s *secretRoutes) batchEncrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Plaintexts [][]byte `json:"plaintexts"`
	}
	if err := decodeBig(w, r, &body); err != nil {
		return err
	}
	out := make([][]byte, 0, len(body.Plaintexts))
	for _, pt := range body.Plaintexts {
		ct, err := s.stacks.Secrets().Encrypt(r.Context(), st.ID, pt)
		if err != nil {
			return err
		}
		out = append(out, ct)
	}
	return writeJSON(w, r, http.StatusOK, map[string][][]byte{"ciphertexts": out})
}

func (s *secretRoutes) decrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Ciphertext []byte `json:"ciphertext"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	pt, err := s.stacks.Secrets().Decrypt(r.Context(), st.ID, body.Ciphertext)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string][]byte{"plaintext": pt})
}

// batchDecrypt answers every ciphertext under the very text it was sent as: a
// client looks its own text up and stops at one that is missing.
func (s *secretRoutes) batchDecrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Ciphertexts []string `json:"ciphertexts"`
	}
	if err := decodeBig(w, r, &body); err != nil {
		return err
	}
	out := make(map[string][]byte, len(body.Ciphertexts))
	for _, text := range body.Ciphertexts {
		ct, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return fault.Invalid("Bad Request: a ciphertext is not valid base64")
		}
		pt, err := s.stacks.Secrets().Decrypt(r.Context(), st.ID, ct)
		if err != nil {
			return err
		}
		out[text] = pt
	}
	return writeJSON(w, r, http.StatusOK, map[string]any{"plaintexts": out})
}

// logDecryption is how clients tell that they decrypted a secret by other
// means than this server; the access log has the call and the caller.
func (s *secretRoutes) logDecryption(w http.ResponseWriter, r *http.Request, _ store.Stack) error {
	var body struct {
		SecretName  string `json:"secretName"`
		CommandName string `json:"commandName"`
	}
	if err := decodeOptional(w, r, &body); err != nil {
		return err
	}
	return noContent(w)
}

package state

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// secretRoutes encrypt and decrypt the secrets of stacks. Values are bytes encoded in base64.
type secretRoutes struct{ stacks *stacks.Service }

func (s *secretRoutes) register(rt *web.Router) {
	rt.Stack(http.MethodPost, web.StackPath+"/encrypt", identity.Encrypt, s.encrypt)
	rt.Stack(http.MethodPost, web.StackPath+"/batch-encrypt", identity.Encrypt, s.batchEncrypt)
	rt.Stack(http.MethodPost, web.StackPath+"/decrypt", identity.Decrypt|identity.DecryptConfig|identity.Outputs, s.decrypt)
	rt.Stack(http.MethodPost, web.StackPath+"/batch-decrypt", identity.Decrypt|identity.DecryptConfig|identity.Outputs, s.batchDecrypt)
	rt.Stack(http.MethodPost, web.StackPath+"/decrypt/log-decryption", identity.Decrypt, s.logDecryption)
	rt.Stack(http.MethodPost, web.StackPath+"/decrypt/log-batch-decryption", identity.Decrypt, s.logDecryption)
}

func (s *secretRoutes) encrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Plaintext []byte `json:"plaintext"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	ct, err := s.stacks.Encrypt(r.Context(), st, body.Plaintext)
	return web.Answer(w, r, map[string][]byte{"ciphertext": ct}, err)
}

// secretCopies is the maximum number of copies of each secret in memory before the response is
// encoded: in the request, decoded, and as result.
const secretCopies = 3

// maxSecrets bounds the number of values in a batch, and so its running time. The stock CLI sends a
// state's secrets in batches of 1000, but all secrets of a configuration at once.
const maxSecrets = 10_000

// readSecrets decodes a body whose member values are the secrets.
func readSecrets[T any](w http.ResponseWriter, r *http.Request, body any, member string, values *[]T) error {
	data, err := request.ReadJSON(w, r, request.Batch(r), secretCopies)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, body); err != nil {
		return request.InvalidJSON(err)
	}
	if len(*values) > maxSecrets {
		return fault.New(fault.KindTooLarge, "a request may contain at most %d %s; send them in several requests", maxSecrets, member)
	}
	return nil
}

func (s *secretRoutes) batchEncrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Plaintexts [][]byte `json:"plaintexts"`
	}
	if err := readSecrets(w, r, &body, "plaintexts", &body.Plaintexts); err != nil {
		return err
	}
	out := make([][]byte, len(body.Plaintexts))
	for i, plaintext := range body.Plaintexts {
		var err error
		if out[i], err = s.stacks.Encrypt(r.Context(), st, plaintext); err != nil {
			return err
		}
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string][][]byte{"ciphertexts": out})
}

func (s *secretRoutes) decrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Ciphertext []byte `json:"ciphertext"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if err := s.mayDecrypt(r, st, base64.StdEncoding.EncodeToString(body.Ciphertext)); err != nil {
		return err
	}
	var pt []byte
	err := s.stacks.Decrypt(r.Context(), web.Principal(r), st, func(decrypt func([]byte) ([]byte, error)) (err error) {
		pt, err = decrypt(body.Ciphertext)
		return err
	})
	return web.Answer(w, r, map[string][]byte{"plaintext": pt}, err)
}

// mayDecrypt returns an error unless the caller may decrypt ciphertexts, given in base64. A caller
// that can access only outputs may decrypt only the secrets in the outputs.
func (s *secretRoutes) mayDecrypt(r *http.Request, st store.Stack, ciphertexts ...string) error {
	if web.Principal(r).Can(st, identity.Decrypt|identity.DecryptConfig) {
		return nil
	}
	return s.stacks.CheckOutputSecrets(r.Context(), st, ciphertexts)
}

// batchDecrypt responds with a map from ciphertexts to plaintexts. Each key is exactly the text
// that the client sent, because clients look up that text and fail if it is missing.
func (s *secretRoutes) batchDecrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Ciphertexts []string `json:"ciphertexts"`
	}
	if err := readSecrets(w, r, &body, "ciphertexts", &body.Ciphertexts); err != nil {
		return err
	}
	if err := s.mayDecrypt(r, st, body.Ciphertexts...); err != nil {
		return err
	}
	out := make(map[string]string, len(body.Ciphertexts))
	err := s.stacks.Decrypt(r.Context(), web.Principal(r), st, func(decrypt func([]byte) ([]byte, error)) error {
		for _, text := range body.Ciphertexts {
			ct, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return fault.Invalid("a ciphertext is not valid base64")
			}
			pt, err := decrypt(ct)
			if err != nil {
				return err
			}
			out[text] = base64.StdEncoding.EncodeToString(pt)
		}
		return nil
	})
	return web.Answer(w, r, map[string]map[string]string{"plaintexts": out}, err)
}

// logDecryption records a client's report that it decrypted secrets without this server.
func (s *secretRoutes) logDecryption(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		SecretName  string `json:"secretName"`
		CommandName string `json:"commandName"`
	}
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	return web.Done(w, s.stacks.ReportDecryption(r.Context(), web.Principal(r), st, cmp.Or(body.SecretName, body.CommandName)))
}

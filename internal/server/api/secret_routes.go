package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
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

// secretCopies is how often secrets are in memory: as sent, as bytes, and in an
// answer that grows.
const secretCopies = 4

func (s *secretRoutes) batchEncrypt(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	data, err := readJSON(w, r, batchBounds(r), secretCopies)
	if err != nil {
		return err
	}
	out := []byte(`{"ciphertexts":[`)
	empty := len(out)
	err = eachElement(data, "plaintexts", func(dec *json.Decoder) error {
		var plaintext []byte
		if err := dec.Decode(&plaintext); err != nil {
			return invalidJSON(err)
		}
		ct, err := s.stacks.Secrets().Encrypt(r.Context(), st.ID, plaintext)
		if err != nil {
			return err
		}
		if len(out) > empty {
			out = append(out, ',')
		}
		out = appendBase64(out, ct)
		return nil
	})
	if err != nil {
		return err
	}
	return writeRaw(w, r, http.StatusOK, append(out, "]}\n"...))
}

// appendBase64 adds bytes as JSON has them.
func appendBase64(out, p []byte) []byte {
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, p)
	return append(out, '"')
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
	data, err := readJSON(w, r, batchBounds(r), secretCopies)
	if err != nil {
		return err
	}
	out := []byte(`{"plaintexts":{`)
	answered := map[string]bool{}
	err = eachElement(data, "ciphertexts", func(dec *json.Decoder) error {
		var text string
		if err := dec.Decode(&text); err != nil {
			return invalidJSON(err)
		}
		ct, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return fault.Invalid("Bad Request: a ciphertext is not valid base64")
		}
		pt, err := s.stacks.Secrets().Decrypt(r.Context(), st.ID, ct)
		if err != nil || answered[text] {
			return err
		}
		if len(answered) > 0 {
			out = append(out, ',')
		}
		answered[text] = true
		key, err := json.Marshal(text)
		if err != nil {
			return fmt.Errorf("encoding the response: %w", err)
		}
		out = append(append(out, key...), ':')
		out = appendBase64(out, pt)
		return nil
	})
	if err != nil {
		return err
	}
	return writeRaw(w, r, http.StatusOK, append(out, "}}\n"...))
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

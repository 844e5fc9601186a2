package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// manySecrets returns n distinct secrets of about 40 bytes each, which are not valid UTF-8.
func manySecrets(n int) [][]byte {
	secrets := make([][]byte, n)
	for i := range secrets {
		secrets[i] = fmt.Appendf(nil, "\xff\x00 secret %030d", i)
	}
	return secrets
}

func (f *fixture) encryptAll(path string, secrets [][]byte) []string {
	f.t.Helper()
	var out struct{ Ciphertexts []string }
	f.send(call{Method: "POST", Path: path + "/batch-encrypt", Body: map[string]any{"plaintexts": secrets}, Gzip: true}).want(200, &out)
	return out.Ciphertexts
}

func (f *fixture) decryptAll(path string, ciphertexts []string) map[string]string {
	f.t.Helper()
	var out struct{ Plaintexts map[string]string }
	f.send(call{Method: "POST", Path: path + "/batch-decrypt", Body: map[string]any{"ciphertexts": ciphertexts}, Gzip: true}).want(200, &out)
	return out.Plaintexts
}

func TestABatchOfTenThousandSecrets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		path := f.stack("dev")
		secrets := manySecrets(10_000)
		first, retried := f.encryptAll(path, secrets), f.encryptAll(path, secrets)
		for _, ciphertexts := range [][]string{first, retried} {
			plaintexts := f.decryptAll(path, ciphertexts)
			if len(ciphertexts) != len(secrets) || len(plaintexts) != len(secrets) {
				t.Fatalf("%d ciphertexts, %d plaintexts, want %d", len(ciphertexts), len(plaintexts), len(secrets))
			}
			for i, text := range ciphertexts {
				if want := base64.StdEncoding.EncodeToString(secrets[i]); plaintexts[text] != want {
					t.Fatalf("plaintext %d = %q, want %q", i, plaintexts[text], want)
				}
			}
		}
		f.do("POST", path+"/batch-encrypt", map[string]any{"plaintexts": manySecrets(10_001)}).want(413, nil).says("at most 10000 plaintexts")
		f.do("POST", path+"/batch-decrypt", map[string]any{"ciphertexts": append(first, first[0])}).want(413, nil).says("at most 10000 ciphertexts")
	})
}

// BenchmarkSecrets measures a request with 10 000 secrets, including the client's work.
func BenchmarkSecrets(b *testing.B) {
	f := newFixture(b, options{})
	path := f.stack("dev")
	secrets, err := json.Marshal(map[string]any{"plaintexts": manySecrets(10_000)})
	if err != nil {
		b.Fatal(err)
	}
	ciphertexts, err := json.Marshal(map[string]any{"ciphertexts": f.encryptAll(path, manySecrets(10_000))})
	if err != nil {
		b.Fatal(err)
	}
	for name, body := range map[string][]byte{"batch-encrypt": secrets, "batch-decrypt": ciphertexts} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f.send(call{Method: "POST", Path: path + "/" + name, Body: body}).want(200, nil)
			}
		})
	}
}

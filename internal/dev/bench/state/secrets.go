package state

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

const (
	secretsStack = "secrets"
	secretSize   = 64
)

// Secrets measures the encryption and decryption of many secrets, compared with a bare cipher.
func (b *Bench) Secrets(ctx context.Context) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.newStack(ctx, secretsStack); err != nil {
		return err
	}
	n := pick(b, 10_000, 1000)
	var encrypt, decrypt, floor []float64
	var ciphertexts []string
	wrong := 0
	for range b.Rounds {
		batch := newSecrets(n)
		_, used, err := p.timed(ctx, func() (err error) {
			ciphertexts, err = p.encrypt(ctx, batch)
			return err
		})
		if err != nil {
			return err
		}
		encrypt = append(encrypt, used*1000)
		var plaintexts map[string][]byte
		if _, used, err = p.timed(ctx, func() (err error) {
			plaintexts, err = p.decrypt(ctx, ciphertexts)
			return err
		}); err != nil {
			return err
		}
		decrypt = append(decrypt, used*1000)
		for i, ciphertext := range ciphertexts {
			if !bytes.Equal(plaintexts[ciphertext], batch[i]) {
				wrong++
			}
		}
		bare, err := bareCipher(batch)
		if err != nil {
			return err
		}
		floor = append(floor, bare.Seconds()*1000)
	}
	b.Say("  %d values: encrypt %.0f ms of CPU, decrypt %.0f ms, bare cipher %.1f ms", n, last(encrypt), last(decrypt), last(floor))
	limit := figures.AtMost(pick(b, 2000.0, 200), true)
	b.Add(fmt.Sprintf("encrypt %d values, CPU of the server; bare AES-GCM", n), "ms", encrypt, floor, limit)
	b.Add(fmt.Sprintf("decrypt %d values, CPU of the server; bare AES-GCM", n), "ms", decrypt, floor, limit)
	b.Add("values missing or wrong after decryption", "values", []float64{float64(wrong + n - len(ciphertexts))}, nil, figures.AtMost(0, true))
	return b.showSecrets(ctx, p, 2*n)
}

// newSecrets returns n different JSON strings, because the CLI encrypts the JSON of a value.
func newSecrets(n int) [][]byte {
	values := make([][]byte, n)
	for i := range values {
		values[i] = fmt.Appendf(nil, "%q", fmt.Sprintf("secret %0*d", secretSize, i))
	}
	return values
}

func (p *product) encrypt(ctx context.Context, values [][]byte) ([]string, error) {
	var out struct {
		Ciphertexts []string `json:"ciphertexts"`
	}
	err := p.Call(ctx, http.MethodPost, p.path(secretsStack)+"/batch-encrypt", map[string]any{"plaintexts": values}, &out)
	return out.Ciphertexts, err
}

func (p *product) decrypt(ctx context.Context, ciphertexts []string) (map[string][]byte, error) {
	var out struct {
		Plaintexts map[string][]byte `json:"plaintexts"`
	}
	err := p.Call(ctx, http.MethodPost, p.path(secretsStack)+"/batch-decrypt", map[string]any{"ciphertexts": ciphertexts}, &out)
	return out.Plaintexts, err
}

// bareCipher returns the duration of encrypting values in one goroutine.
func bareCipher(values [][]byte) (time.Duration, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return 0, fmt.Errorf("preparing the bare cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return 0, fmt.Errorf("preparing the bare cipher: %w", err)
	}
	began := time.Now()
	for _, value := range values {
		aead.Seal(nil, nil, value, nil)
	}
	return time.Since(began), nil
}

// showSecrets exports a state of n secrets in plain text with the CLI.
func (b *Bench) showSecrets(ctx context.Context, p *product, n int) error {
	state, err := p.secretState(ctx, n)
	if err != nil {
		return err
	}
	packed, err := compress(state)
	if err != nil {
		return err
	}
	if err := p.importState(ctx, secretsStack, packed); err != nil {
		return err
	}
	c, err := b.newCLIs(ctx, 1)
	if err != nil {
		return err
	}
	client, err := c.forProduct(p)
	if err != nil {
		return err
	}
	file := filepath.Join(c.homes, "export.json")
	took, used, err := p.timed(ctx, func() error {
		_, err := client.on(ctx, secretsStack, "stack", "export", "--show-secrets", "--file="+file)
		return err
	})
	if err != nil {
		return err
	}
	exported, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading an export: %w", err)
	}
	b.Say("  pulumi stack export --show-secrets of %d secrets: %.1f s, server CPU %.2f s", n, took.Seconds(), used)
	b.Add(fmt.Sprintf("pulumi stack export --show-secrets of %d", n), "s", []float64{took.Seconds()}, nil, figures.Goal{})
	b.Add("CPU of the server", "s", []float64{used}, nil, figures.AtMost(pick(b, 4, 0.4), true))
	b.Add("secrets missing in the export", "secrets", []float64{float64(n - bytes.Count(exported, []byte(`"plaintext":`)))}, nil, figures.AtMost(0, true))
	return nil
}

// secretState returns a state of n resources with one secret each.
func (p *product) secretState(ctx context.Context, n int) ([]byte, error) {
	const batch = 10_000 // the server's limit
	values := newSecrets(n)
	var ciphertexts []string
	for len(values) > 0 {
		size := min(batch, len(values))
		some, err := p.encrypt(ctx, values[:size])
		if err != nil {
			return nil, err
		}
		ciphertexts, values = append(ciphertexts, some...), values[size:]
	}
	type object = map[string]any
	resources := make([]object, n)
	for i := range resources {
		resources[i] = object{
			"urn": fmt.Sprintf("urn:pulumi:%s::%s::%s::r%05d", secretsStack, project, stashType, i), "custom": true, "type": stashType, "id": fmt.Sprint(i),
			"outputs": object{"output": object{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": ciphertexts[i]}},
		}
	}
	state, err := json.Marshal(object{"version": 3, "deployment": object{
		"manifest": object{"time": "2026-01-02T03:04:05Z", "magic": "", "version": "v3.255.0"},
		"secrets_providers": object{"type": "service", "state": object{
			"url": p.URL, "owner": p.Organization, "project": project, "stack": secretsStack,
		}},
		"resources": resources,
	}})
	if err != nil {
		return nil, fmt.Errorf("writing a state: %w", err)
	}
	return state, nil
}

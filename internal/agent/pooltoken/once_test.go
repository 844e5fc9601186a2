package pooltoken

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
)

type exchange func(protocol.TokenExchange) (protocol.PoolToken, error)

func (e exchange) ExchangeToken(_ context.Context, x protocol.TokenExchange) (protocol.PoolToken, error) {
	return e(x)
}

func TestExchangeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	opts := Options{File: file, Organization: "acme", PoolID: "pool-1", Client: exchange(func(x protocol.TokenExchange) (protocol.PoolToken, error) {
		if x.Organization != "acme" || x.PoolID != "pool-1" || x.SubjectToken != "issued" {
			return protocol.PoolToken{}, errors.New("no policy allows it")
		}
		return protocol.PoolToken{Value: "pul-pool"}, nil
	})}
	if _, err := Exchange(t.Context(), opts); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("without a file: %v", err)
	}
	for text, want := range map[string]string{"issued\n": "pul-pool", "other\n": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Exchange(t.Context(), opts)
		if got.Value != want || (err != nil) != (want == "") {
			t.Errorf("%q became %q, %v", text, got.Value, err)
		}
	}
}

package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestMembersOfStructuredSecrets contains one secret per format. Programs print its members one by one.
func TestMembersOfStructuredSecrets(t *testing.T) {
	const key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\nMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dV\n-----END PRIVATE KEY-----\n"
	account, err := json.Marshal(map[string]any{
		"type": "service_account", "project_id": "a-rather-long-project-id", "private_key_id": "0f1e2d3c4b5a69788796a5b4c3d2e1f001122334",
		"private_key": key, "token_uri": "https://oauth2.googleapis.com/token", "universe_domain": "googleapis.com", "region": "europe-west1",
		"nested": []any{map[string]any{"pin_token": 12345678, "enabled": true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	googleShown := []string{"service_account", "a-rather-long-project-id", "https://oauth2.googleapis.com/token", "googleapis.com", "europe-west1"}
	googleHidden := []string{
		key, "0f1e2d3c4b5a69788796a5b4c3d2e1f001122334", "12345678",
		"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dV",
	}
	for _, tt := range []struct {
		format, secret string
		hidden, shown  []string
	}{
		{"JSON", string(account), googleHidden, googleShown},
		{"JSON in base64", encode(string(account)), append(googleHidden, string(account)), googleShown},
		{"JSON in JSON", `{"credentials":` + quoteJSON(t, string(account)) + `}`, append(googleHidden, string(account)), googleShown},
		{
			"YAML",
			"apiVersion: v1\nkind: Secret\ndata:\n  password: " + encode("pass-word-1") + "\n  region: " + encode("eu-central-1") +
				"\nusers:\n- name: admin\n  user:\n    client-key-data: " + encode(key) + "\n    token: abc-def-1\nserver: https://cluster.example.com:6443\n",
			[]string{encode("pass-word-1"), "pass-word-1", encode(key), "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dV", "abc-def-1"},
			[]string{"eu-central-1", "cluster.example.com", "admin"},
		},
		{
			"PEM", key, []string{"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dV"}, []string{"PRIVATE"},
		},
		{
			"dotenv", "# settings\nexport DB_PASSWORD='pass word'\nREGION=eu-central-1\nAPI=\"0123456789abcdefghijklm\"\nURL=https://example.com/a/long/path\n",
			[]string{"pass word", "0123456789abcdefghijklm"},
			[]string{"eu-central-1", "https://example.com/a/long/path"},
		},
		{
			"INI", "[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG\nregion = eu-central-1\n",
			[]string{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG"},
			[]string{"eu-central-1", "default"},
		},
		{
			"connection URL", "postgres://app:p%40ss-word@db.example.com:5432/orders?sslmode=require&sslpassword=other-word",
			[]string{"p@ss-word", "p%40ss-word", "other-word"},
			[]string{"db.example.com", "orders", "require"},
		},
		{
			"connection string", "Server=db.example.com;Database=orders;User Id=app;Password=p@ss-word;AccountKey=" + encode("0123456789abcdef"),
			[]string{"p@ss-word", encode("0123456789abcdef")},
			[]string{"db.example.com", "orders"},
		},
	} {
		t.Run(tt.format, func(t *testing.T) {
			set := New(Secret{"secret", tt.secret})
			for _, text := range tt.hidden {
				if got := set.String("<" + text + ">"); strings.Trim(got, "<>\n") != Marker && !strings.HasPrefix(text, "-----BEGIN") {
					t.Errorf("%q is masked as %q", text, got)
				}
			}
			for _, text := range tt.shown {
				if got := set.String("<" + text + ">"); got != "<"+text+">" {
					t.Errorf("%q is masked as %q", text, got)
				}
			}
		})
	}
}

func quoteJSON(t *testing.T, s string) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMembersHaveLimits checks that no secret is refused because of its members, and that hostile
// structures end.
func TestMembersHaveLimits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "TOKEN_%d=%016x\n", i, rnd.Uint64())
	}
	for name, secret := range map[string]string{
		"many members": many.String(),
		"deep JSON":    strings.Repeat(`{"a":[`, 20000),
		"deep list":    strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deep YAML":    "a: " + strings.Repeat("[", 60000),
		"aliases":      "a: &a [token]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n",
		"base64": func() string {
			s := "token: 0123456789abcdef"
			for range 20 {
				s = base64.StdEncoding.EncodeToString([]byte(s))
			}
			return s
		}(),
	} {
		begin := processorTime(t)
		set, err := Build(t.Context(), Secret{"a", secret})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if took := processorTime(t) - begin; took > 10e9 {
			t.Errorf("%s: took %v", name, took)
		}
		if set.Size() > maxCost+membersCost {
			t.Errorf("%s: %d bytes", name, set.Size())
		}
	}
}

func FuzzMembers(f *testing.F) {
	f.Add(`{"a":{"token":"secret-1"},"b":[1,"x"]}`)
	f.Add("a: &x\n  token: secret-1\nb: *x\n---\n- c: |\n    text\n")
	f.Add("A=1\nB='2'\n[x]\n;c\n")
	f.Add("postgres://u:p@h/d?password=x")
	f.Fuzz(func(t *testing.T, secret string) {
		if size := len(strings.Join(secretMembers(secret), "")); size > 2*maxMemberOf {
			t.Errorf("the members have %d bytes", size)
		}
	})
}

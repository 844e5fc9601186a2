package release

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/release/signing"
)

func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := signing.PublicPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, public
}

func TestCheckVersion(t *testing.T) {
	for text, good := range map[string]bool{
		"v1.2.3": true, "v0.0.1": true, "v10.20.30-rc.1": true, "v1.0.0-alpha-7": true,
		"": false, "1.2.3": false, "v1.2": false, "v01.2.3": false, "v1.2.3+x": false, "v1.2.3-": false, "v1.2.3-rc..1": false,
		"v1.2.3-01": false, "v1.2.3-rc.01": false, "v1.2.3/..": false, "v1.2.3\n": false, "v1.2.3-" + strings.Repeat("a", 64): false,
	} {
		if err := CheckVersion(text); (err == nil) != good {
			t.Errorf("CheckVersion(%q) = %v, want good: %v", text, err, good)
		}
	}
}

func TestArchive(t *testing.T) {
	for _, c := range []struct{ os, arch, want string }{
		{"linux", "amd64", "customer-managed-workflow-agent-v1.2.3-linux-x64.tar.gz"},
		{"darwin", "arm64", "customer-managed-workflow-agent-v1.2.3-darwin-arm64.tar.gz"},
		{"windows", "amd64", ""},
		{"linux", "386", ""},
	} {
		got, err := Archive("v1.2.3", c.os, c.arch)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("Archive(%s, %s) = %q, %v, want %q", c.os, c.arch, got, err, c.want)
		}
	}
	if got, err := ServerArchive("v1.2.3", "linux", "amd64"); err != nil || got != "workflow-server-v1.2.3-linux-x64.tar.gz" {
		t.Errorf("ServerArchive = %q, %v", got, err)
	}
}

func TestSignatures(t *testing.T) {
	first, firstPEM := newKey(t)
	second, secondPEM := newKey(t)
	stranger, _ := newKey(t)
	keys, err := ParseKeys(append(firstPEM, secondPEM...))
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("what is signed")
	for name, c := range map[string]struct {
		key  *ecdsa.PrivateKey
		data string
		want error
	}{
		"first key":    {first, "what is signed", nil},
		"second key":   {second, "what is signed", nil},
		"stranger":     {stranger, "what is signed", ErrSignature},
		"changed data": {first, "what was signed", ErrSignature},
	} {
		signature, err := signing.Sign(c.key, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := keys.Verify([]byte(c.data), signature); !errors.Is(err, c.want) {
			t.Errorf("%s: Verify = %v, want %v", name, err, c.want)
		}
	}
	if err := (Keys{}).Verify(data, nil); !errors.Is(err, ErrSignature) {
		t.Errorf("no keys: Verify = %v, want ErrSignature", err)
	}
}

// TestOpenSSL checks that this package and openssl accept each other's keys and signatures.
func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl")
	}
	dir := t.TempDir()
	openssl := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "openssl", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	openssl("ecparam", "-name", "prime256v1", "-genkey", "-out", "sec1.pem") // writes the curve's parameters before the key
	openssl("pkcs8", "-topk8", "-nocrypt", "-in", "sec1.pem", "-out", "pkcs8.pem")
	openssl("ec", "-in", "sec1.pem", "-pubout", "-out", "public.pem")
	data := []byte("a list of checksums\n")
	if err := os.WriteFile(filepath.Join(dir, "data"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sec1.pem", "pkcs8.pem"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		key, err := signing.ParsePrivateKey(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		signature, err := signing.Sign(key, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ours.sig"), signature, 0o600); err != nil {
			t.Fatal(err)
		}
		openssl("dgst", "-sha256", "-verify", "public.pem", "-signature", "ours.sig", "data")
	}
	openssl("dgst", "-sha256", "-sign", "sec1.pem", "-out", "theirs.sig", "data")
	public, err := os.ReadFile(filepath.Join(dir, "public.pem"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(dir, "theirs.sig"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(public)
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Verify(data, theirs); err != nil {
		t.Errorf("a signature of openssl: %v", err)
	}
}

func TestKeysThatDoNotFit(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	wrongCurve := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for name, text := range map[string][]byte{"nothing": nil, "no PEM": []byte("x"), "P-384": wrongCurve} {
		if key, err := signing.ParsePrivateKey(text); err == nil || key != nil {
			t.Errorf("%s: ParsePrivateKey = %v, %v, want an error", name, key, err)
		}
		if keys, err := ParseKeys(text); err == nil || keys != nil {
			t.Errorf("%s: ParseKeys = %v, %v, want an error", name, keys, err)
		}
	}
	public, err := signing.PublicPEM(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseKeys(public); err == nil || !strings.Contains(err.Error(), "P-256") {
		t.Errorf("ParseKeys of a P-384 key = %v, want an error that names P-256", err)
	}
}

func TestBuiltinKeys(t *testing.T) {
	t.Cleanup(func() { publicKeys = "" })
	if _, err := BuiltinKeys(); !errors.Is(err, ErrNoKeys) {
		t.Errorf("BuiltinKeys of this build = %v, want ErrNoKeys", err)
	}
	_, public := newKey(t)
	publicKeys = base64.StdEncoding.EncodeToString(public)
	if keys, err := BuiltinKeys(); err != nil || len(keys) != 1 {
		t.Errorf("BuiltinKeys = %v, %v, want one", keys, err)
	}
	for _, text := range []string{"%", base64.StdEncoding.EncodeToString([]byte("no key"))} {
		publicKeys = text
		if keys, err := BuiltinKeys(); err == nil || keys != nil {
			t.Errorf("BuiltinKeys of %q = %v, %v, want an error", text, keys, err)
		}
	}
}

func TestChecksums(t *testing.T) {
	sums := Checksums{"b.tar.gz": sha256.Sum256([]byte("b")), "a.deb": sha256.Sum256([]byte("a"))}
	var text bytes.Buffer
	if _, err := sums.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(strings.Split(text.String(), "\n")[0], "  a.deb") {
		t.Errorf("the list is not in order:\n%s", &text)
	}
	again, err := ParseChecksums(text.Bytes())
	if err != nil || len(again) != 2 || again["a.deb"] != sums["a.deb"] || again["b.tar.gz"] != sums["b.tar.gz"] {
		t.Errorf("ParseChecksums = %v, %v, want %v", again, err, sums)
	}
	sum := strings.Repeat("0a", 32)
	for _, bad := range []string{
		"", "\n", sum, sum + " x", sum + "  ", sum[2:] + "  x", sum + "  ../x", sum + "  /x", sum + "  ..", sum + "  a\\b",
		sum + "  x\n" + sum + "  x", sum + "  x\n\n",
	} {
		if sums, err := ParseChecksums([]byte(bad)); err == nil {
			t.Errorf("ParseChecksums(%q) = %v, want an error", bad, sums)
		}
	}
}

func TestChannel(t *testing.T) {
	c := Channel{"v1.2.3", time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)}
	if again, err := ParseChannel(c.Text()); err != nil || again != c {
		t.Errorf("ParseChannel(Text) = %v, %v, want %v", again, err, c)
	}
	if again, err := ParseChannel(append(c.Text(), "later: word\n"...)); err != nil || again != c {
		t.Errorf("with a name of later: %v, %v, want %v", again, err, c)
	}
	for _, bad := range []string{
		"", "version: v1.2.3\n", "published: 2026-11-22T10:00:00Z\n", "version: 1.2.3\npublished: 2026-11-22T10:00:00Z\n",
		"version: v1.2.3\npublished: today\n", "version: v1.2.3\nversion: v1.2.4\npublished: 2026-11-22T10:00:00Z\n",
		"version v1.2.3\n", string(c.Text()) + "x: " + strings.Repeat("x", maxChannelFile),
	} {
		if c, err := ParseChannel([]byte(bad)); err == nil || c != (Channel{}) {
			t.Errorf("ParseChannel(%q) = %v, %v, want an error", bad, c, err)
		}
	}
}

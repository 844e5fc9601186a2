package refs

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// TestSSH lists refs of a real OpenSSH server.
func TestSSH(t *testing.T) {
	if reason, ok := lab.SSHAvailable(); !ok {
		t.Skip(reason)
	}
	_, repo, want := fixture(t, lab.GitOptions{})
	for _, passphrase := range []string{"", "a passphrase"} {
		dir, err := os.MkdirTemp("", "ssh")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		server, err := lab.StartSSHServer(t.Context(), dir, passphrase)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		_, hosts, key, _, _, err := ssh.ParseKnownHosts([]byte(server.KnownHosts))
		if err != nil {
			t.Fatal(err)
		}
		credential := vcs.Credential{SSHPrivateKey: server.PrivateKey, SSHPassphrase: passphrase}
		address, prefixes := server.RepoURL(repo), []string{"refs/"}
		hashed := knownhosts.HashHostname(hosts[0]) + " " + string(ssh.MarshalAuthorizedKey(key))
		c := &Client{Reach: outbound.Reach{Anywhere: true}}
		for _, line := range []string{server.KnownHosts, hashed} {
			c.HostKeys = []string{"# a comment", otherKey(t, "other.example.com"), line}
			got, err := c.List(t.Context(), address, credential, prefixes)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
		for name, tt := range map[string]struct {
			keys       []string
			credential vcs.Credential
			address    string
			want       string
		}{
			"another key of the host": {[]string{otherKey(t, hosts[0])}, credential, address, "host key is none of those"},
			"no key of the host":      {[]string{otherKey(t, "other.example.com")}, credential, address, "no host key of"},
			"a missing repository":    {[]string{server.KnownHosts}, credential, address + "-missing", "sent no refs"},
			"a quote in the path":     {[]string{server.KnownHosts}, credential, address + "'$(id)'", "sent no refs"},
			"a key of a stranger":     {[]string{server.KnownHosts}, vcs.Credential{SSHPrivateKey: privateKey(t)}, address, "does not accept the key"},
			"no key":                  {[]string{server.KnownHosts}, vcs.Credential{Password: "x"}, address, "has no SSH key"},
			"no key's text":           {[]string{server.KnownHosts}, vcs.Credential{SSHPrivateKey: "x"}, address, "not in PEM"},
		} {
			c.HostKeys = tt.keys
			_, err := c.List(t.Context(), tt.address, tt.credential, prefixes)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if passphrase == "" {
			continue
		}
		for given, want := range map[string]string{"": "needs a passphrase", "wrong": "does not fit"} {
			if err := CheckKey(vcs.Credential{SSHPrivateKey: server.PrivateKey, SSHPassphrase: given}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the passphrase %q: %v", given, err)
			}
		}
	}
}

func TestCheckHostKeys(t *testing.T) {
	valid := otherKey(t, "git.example.com")
	_, key, _ := strings.Cut(valid, " ")
	for line, ok := range map[string]bool{
		valid: true, "": true, "# comment": true, "[git.example.com]:2222 " + key: true,
		key: false, "* " + key: false, "*.example.com " + key: false, "!a,b " + key: false,
		"@revoked a " + key: false, "@cert-authority a " + key: false, "git.example.com ssh-ed25519 nonsense": false,
	} {
		if err := CheckHostKeys([]string{line}); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func otherKey(t *testing.T, host string) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return host + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func privateKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func TestConverseWithSilentServer(t *testing.T) {
	if err := converse(newReader(strings.NewReader("")), new(strings.Builder), nil, listInto(new([]vcs.Ref), nil)); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// TestCostlyKey checks that a key cannot occupy the server while it is decrypted.
func TestCostlyKey(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("a passphrase"))
	if err != nil {
		t.Fatal(err)
	}
	usual := string(pem.EncodeToMemory(block))
	if err := CheckKey(vcs.Credential{SSHPrivateKey: usual, SSHPassphrase: "a passphrase"}); err != nil {
		t.Errorf("a key with the usual number of rounds: %v", err)
	}
	at := bytes.Index(block.Bytes, []byte("bcrypt")) + len("bcrypt") + 4 + 4 + 16 // the lengths of options and salt, and the salt
	binary.BigEndian.PutUint32(block.Bytes[at:], 2000)
	if err := CheckKey(vcs.Credential{SSHPrivateKey: string(pem.EncodeToMemory(block)), SSHPassphrase: "a passphrase"}); err == nil || !strings.Contains(err.Error(), "2000 rounds") {
		t.Errorf("a key with 2000 rounds: %v", err)
	}
}

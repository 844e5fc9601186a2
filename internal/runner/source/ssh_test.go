package source_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

func TestFetchBySSH(t *testing.T) {
	if reason, ok := lab.SSHAvailable(); !ok {
		t.Skip(reason)
	}
	const passphrase = "correct horse battery"
	f := newFixture(t, lab.GitOptions{})
	server := func(passphrase string) *lab.SSHServer {
		s, err := lab.StartSSHServer(t.Context(), t.TempDir(), passphrase)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	plain, locked := server(""), server(passphrase)
	for _, tt := range []struct {
		name   string
		server *lab.SSHServer
		auth   workflow.GitAuth
		want   string // of the error; "" for success
	}{
		{"key", plain, workflow.GitAuth{SSHPrivateKey: plain.PrivateKey}, ""},
		{"key from a form", plain, workflow.GitAuth{SSHPrivateKey: strings.ReplaceAll(strings.TrimSpace(plain.PrivateKey), "\n", "\r\n")}, ""},
		{"key before token", plain, workflow.GitAuth{SSHPrivateKey: plain.PrivateKey, AccessToken: token}, ""},
		{"key with passphrase", locked, workflow.GitAuth{SSHPrivateKey: locked.PrivateKey, SSHPassphrase: passphrase}, ""},
		{"wrong passphrase", locked, workflow.GitAuth{SSHPrivateKey: locked.PrivateKey, SSHPassphrase: "wrong"}, "cloning"},
		{"no passphrase", locked, workflow.GitAuth{SSHPrivateKey: locked.PrivateKey}, "cloning"},
		{"other key", plain, workflow.GitAuth{SSHPrivateKey: locked.PrivateKey, SSHPassphrase: passphrase}, "rejected the credentials"},
		{"not a key", plain, workflow.GitAuth{SSHPrivateKey: "ssh-ed25519 AAAA"}, "not in PEM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.fetch(t.Context(), t, workflow.GitSource{RepoURL: tt.server.RepoURL(f.repo), Branch: "main", Auth: &tt.auth})
			switch {
			case tt.want == "" && err != nil:
				t.Fatalf("%v\n%s", err, f.log.String())
			case tt.want == "" && got.Commit != f.first:
				t.Errorf("checked out %s, want %s", got.Commit, f.first)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q\n%s", err, tt.want, f.log.String())
			}
			for _, secret := range []string{passphrase, "PRIVATE KEY"} {
				if strings.Contains(f.log.String(), secret) {
					t.Errorf("the log holds %q", secret)
				}
			}
		})
	}
}

// TestPassphraseOfAKeyWithALongName checks the response to a prompt in which ssh truncates the
// key's file name.
func TestPassphraseOfAKeyWithALongName(t *testing.T) {
	dir := t.TempDir()
	key := "/" + strings.Repeat("directory/", 12) + "key"
	file := filepath.Join(dir, "answers.json")
	if err := os.WriteFile(file, []byte(`{"passphrase":"open sesame","keyFile":"`+key+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := source.Answer(file, "Enter passphrase for key '"+key[:100]+"': "); err != nil || got != "open sesame" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := source.Answer(file, "Enter passphrase for key '/home/user/.ssh/id_ed25519': "); err == nil {
		t.Errorf("another key got %q", got)
	}
}

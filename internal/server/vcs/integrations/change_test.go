package integrations

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/server/vcs"
)

// TestCredentialsOfFiles checks that the newline at the end of a file is no part of a credential.
func TestCredentialsOfFiles(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, tt := range map[string]struct {
		change Change
		want   vcs.Credential
	}{
		"a token":    {Change{Token: text(" glpat-1\r\n")}, vcs.Credential{Password: "glpat-1"}},
		"a password": {Change{UserName: text("me\n"), Token: text(" pass \n")}, vcs.Credential{UserName: "me", Password: " pass "}},
		"a key":      {Change{SSHKey: text("KEY\n"), Passphrase: text("p\r\n")}, vcs.Credential{SSHPrivateKey: "KEY", SSHPassphrase: "p"}},
		"removed":    {Change{Token: text("")}, vcs.Credential{}},
	} {
		l := login{}
		if name == "removed" {
			l.Password = "old"
		}
		l.change(tt.change)
		if diff := cmp.Diff(tt.want, l.Credential); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

package openid

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"secret": "hush\n", "empty": "\n", "sign-in.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "sign-in.yaml")
}

func TestLoad(t *testing.T) {
	path := write(t, `# The company's providers.
providers:
  - id: corp
    name: Example Corp
    issuer: https://id.example.com/realms/x
    client_id: workflow-server
    client_secret_file: secret
    scopes: [email, groups]
    groups_claim: roles
    login_claim: nickname
    allow_domains: [Example.COM]
    allow_groups:
      - engineers
    roles:
      - {organization: acme, role: member}
      - {group: platform, organization: acme, role: admin}
    teams:
      - {group: engineers, organization: acme, team: core}
      - {group: platform, organization: acme, team: core, role: admin}
  - id: other
    issuer: https://other.example.com/
    client_id: "42"
    allow_everyone: true
`)
	got, err := Load(path)
	want := []Config{{
		ID: "corp", Name: "Example Corp", Issuer: "https://id.example.com/realms/x", ClientID: "workflow-server",
		SecretFile: filepath.Join(filepath.Dir(path), "secret"), Scopes: []string{"email", "groups"}, GroupsClaim: "roles", LoginClaim: "nickname",
		AllowDomains: []string{"example.com"}, AllowGroups: []string{"engineers"},
		Roles: []Role{{"", "acme", "member"}, {"platform", "acme", "admin"}},
		Teams: []Team{{"engineers", "acme", "core", "member"}, {"platform", "acme", "core", "admin"}},
	}, {
		ID: "other", Name: "other", Issuer: "https://other.example.com/", ClientID: "42", Scopes: []string{"profile", "email"},
		GroupsClaim: "groups", LoginClaim: "preferred_username", AllowEveryone: true,
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Load = %+v, %v", got, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = "providers:\n  - id: corp\n    issuer: https://id.example.com\n    client_id: x\n    allow_everyone: true\n"
	if _, err := Load(write(t, good)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"empty":               {"", ":1: "},
		"no providers":        {"providers: []\n", "has 0 entries"},
		"not a list":          {"providers: yes\n", ":1: providers: is not a list"},
		"no YAML":             {"providers: [\n", "is not valid YAML"},
		"a list":              {"- id: corp\n", ":1: is not a list of keys"},
		"a misplaced secret":  {good + "    client_secret: hush-hush\n", ":6: client_secret: is unknown: the keys here are allow_domains, "},
		"a secret as a key":   {good + "    hush 1: x\n", ":6: this key: is unknown"},
		"a key twice":         {good + "    client_id: y\n", ":6: client_id: is set a second time"},
		"no id":               {strings.Replace(good, "id: corp", "name: corp", 1), ":2: id: is missing"},
		"an id with a slash":  {strings.Replace(good, "id: corp", "id: ../x", 1), ":2: id: is missing or not valid"},
		"the same id":         {good + strings.TrimPrefix(good, "providers:\n"), ":6: id: is the id of another provider"},
		"no client":           {strings.Replace(good, "client_id: x", "client_id: ''", 1), "client_id: is missing"},
		"a plain issuer":      {strings.Replace(good, "https://id", "http://id", 1), "issuer: must begin with https://"},
		"an issuer of a user": {strings.Replace(good, "https://id", "https://hush@id", 1), "issuer: must not contain a user"},
		"nobody may enter":    {strings.Replace(good, "    allow_everyone: true\n", "", 1), "says not who may sign in"},
		"everyone: maybe":     {strings.Replace(good, "true", "maybe", 1), "allow_everyone: is not true or false"},
		"an address":          {good + "    allow_domains: [a@example.com]\n", "allow_domains: has an entry that is not a domain"},
		"an empty group":      {good + "    allow_groups: ['']\n", "allow_groups: has an empty entry"},
		"a missing secret":    {good + "    client_secret_file: none\n", "client_secret_file: "},
		"an empty secret":     {good + "    client_secret_file: empty\n", "is empty"},
		"no certificate":      {good + "    ca_certificate_file: secret\n", ":6: ca_certificate_file: "},
		"a missing authority": {good + "    ca_certificate_file: none\n", ":6: ca_certificate_file: "},
		"an unknown role":     {good + "    roles: [{organization: acme, role: owner}]\n", ":6: role: is missing or unknown"},
		"no organization":     {good + "    roles: [{group: x, role: admin}]\n", ":6: organization: is missing"},
		"no team":             {good + "    teams: [{group: x, organization: acme}]\n", ":6: team: is missing"},
		"a team of no one":    {good + "    teams: [{group: x, team: core}]\n", ":6: organization: is missing"},
		"a role in a team":    {good + "    teams: [{organization: acme, team: core, role: billing-manager}]\n", ":6: role: is unknown: use member or admin"},
		"a role in a text":    {good + "    roles: [admin]\n", ":6: is not a list of keys"},
		"a list as text":      {good + "    name: [x]\n", ":6: name: is not a text"},
	} {
		_, err := Load(write(t, tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was read")
	}
}

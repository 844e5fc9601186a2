package deployments_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// withSecrets is settings with a secret of each kind. Each value names its member.
const withSecrets = `{"sourceContext":{"git":{"repoUrl":"https://git.example/a.git","branch":"main","gitAuth":{"basicAuth":{"userName":{"secret":"the user"},"password":{"secret":"the password"}}}}},
	"executorContext":{"executorImage":{"reference":"registry.example/a:1","credentials":{"username":"u","password":{"secret":"the registry"}}}},
	"operationContext":{"environmentVariables":{"A":{"secret":"the variable"}}}}`

// The paths of these secrets.
const (
	userPath, passwordPath = "sourceContext.git.gitAuth.basicAuth.userName", "sourceContext.git.gitAuth.basicAuth.password"
	registryPath, varPath  = "executorContext.executorImage.credentials.password", "operationContext.environmentVariables.A"
)

var secretValues = map[string]string{userPath: "the user", passwordPath: "the password", registryPath: "the registry", varPath: "the variable"}

func (p *plant) ring() *keyring.Ring {
	p.t.Helper()
	ring, err := keyring.Open(p.t.Context(), p.db, bytes.Repeat([]byte{7}, 32))
	p.must(err)
	return ring
}

// bare returns a secret of a stack as servers stored it that bound it only to the stack.
func (p *plant) bare(st store.Stack, value string) string {
	p.t.Helper()
	ct, err := p.ring().Encrypt(p.t.Context(), "deployments/"+st.ID, []byte(value))
	p.must(err)
	return ciphertext(ct)
}

func ciphertext(ct []byte) string {
	return `{"ciphertext":"` + base64.StdEncoding.EncodeToString(ct) + `"}`
}

// bared returns settings whose secrets have the form of [plant.bare], and the secrets by their values.
func (p *plant) bared(st store.Stack, settings string) (string, map[string]string) {
	p.t.Helper()
	set, err := workflow.ParseSettings([]byte(settings))
	p.must(err)
	secrets := map[string]string{}
	p.must(set.EachSecret(func(_ string, v *workflow.Secret) error {
		plain, _ := v.Value()
		secrets[plain] = p.bare(st, plain)
		settings = strings.ReplaceAll(settings, `{"secret":"`+plain+`"}`, secrets[plain])
		return nil
	}))
	return settings, secrets
}

// store stores a document of settings as an earlier server.
func (p *plant) store(st store.Stack, document string) {
	p.t.Helper()
	p.must(p.db.Write(p.t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.SaveDeploymentSettings(store.DeploymentSettings{StackID: st.ID, Document: document, Source: "test", Version: 1, UpdatedAt: tx.Now()})
	}))
}

// settings returns a stack's settings as clients read them, and the ciphertexts in them by path.
func (p *plant) settings(st store.Stack) (string, map[string]string) {
	p.t.Helper()
	set, err := p.service.Settings(p.t.Context(), st)
	p.must(err)
	doc, err := json.Marshal(set)
	p.must(err)
	secrets := map[string]string{}
	p.must(set.EachSecret(func(member string, v *workflow.Secret) error {
		if v.IsSecret() {
			secrets[member] = ciphertext(v.Ciphertext())
		}
		return nil
	}))
	return string(doc), secrets
}

func (p *plant) put(st store.Stack, body string) error {
	_, err := p.service.ReplaceSettings(p.t.Context(), p.user, st, []byte(body), "test")
	return err
}

func (p *plant) patch(st store.Stack, body string) error {
	_, err := p.service.PatchSettings(p.t.Context(), p.user, st, []byte(body), "test")
	return err
}

func (p *plant) ask(st store.Stack, body string) (string, error) {
	d, err := p.service.Create(p.t.Context(), p.user, st, asked(p.t, asRequest(body)), "test")
	return d.ID, err
}

func asRequest(settings string) string {
	return strings.Replace(strings.Replace(settings, "{", `{"operation":"update",`, 1), ",}", "}", 1)
}

// prepare returns a request in its stored form.
func (p *plant) prepare(st store.Stack, body string, stored []byte) (out []byte, err error) {
	r := asked(p.t, body)
	err = p.db.Write(p.t.Context(), scope.Server(), func(tx *store.Tx) error {
		out, err = p.service.Prepare(p.t.Context(), tx, p.user, st, &r, stored)
		return err
	})
	return out, err
}

// opened returns the secrets that the job of a deployment gets.
func (p *plant) opened(deploymentID string) string {
	p.t.Helper()
	known, err := p.service.KnownSecrets(p.t.Context(), deploymentID)
	p.must(err)
	var values []string
	for _, s := range known {
		values = append(values, s.Value)
	}
	return strings.Join(values, "; ")
}

func (p *plant) opens(deploymentID string, want ...string) {
	p.t.Helper()
	got := p.opened(deploymentID)
	for _, value := range want {
		if !strings.Contains(got, value) {
			p.t.Errorf("the job gets %q, want %q too", got, value)
		}
	}
}

// misplaced checks that an error is the answer to a ciphertext in another place.
func (p *plant) misplaced(what string, err error, member string) {
	p.t.Helper()
	if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), member+":") || !strings.Contains(err.Error(), "ciphertext") {
		p.t.Errorf("%s: got %v, want a refusal that names %s", what, err, member)
	}
}

func newPlaces(t *testing.T) (*plant, store.Stack) {
	t.Helper()
	p := newPlant(t, storetest.SQLite(t), deployments.Options{})
	return p, p.stack("dev")
}

// moves returns changes that would move a ciphertext away from its member, and the members in which they
// put it.
func moves(from, ct string) map[string]string {
	all := map[string]string{
		`{"operationContext":{"environmentVariables":{"STOLEN":` + ct + `}}}`:                                                               "operationContext.environmentVariables.STOLEN",
		`{"sourceContext":{"git":{"repoUrl":"https://git.example/a.git","gitAuth":{"accessToken":` + ct + `}}}}`:                            "sourceContext.git.gitAuth.accessToken",
		`{"sourceContext":{"git":{"repoUrl":"https://git.example/a.git","gitAuth":{"sshAuth":{"sshPrivateKey":` + ct + `}}}}}`:              "sourceContext.git.gitAuth.sshAuth.sshPrivateKey",
		`{"sourceContext":{"git":{"repoUrl":"https://evil.example/a.git","gitAuth":{"basicAuth":{"userName":"u","password":` + ct + `}}}}}`: passwordPath,
		`{"executorContext":{"executorImage":{"reference":"evil.example/a:1","credentials":{"username":"u","password":` + ct + `}}}}`:       registryPath,
	}
	if from != varPath {
		all[`{"operationContext":{"environmentVariables":{"A":`+ct+`}}}`] = varPath
	}
	return all
}

// TestCiphertextsStayInTheirPlace puts the ciphertexts that clients can read into other members, and
// sends them to other addresses.
func TestCiphertextsStayInTheirPlace(t *testing.T) {
	p, st := newPlaces(t)
	p.must(p.put(st, withSecrets))
	before, secrets := p.settings(st)
	if len(secrets) != len(secretValues) {
		t.Fatalf("the settings contain %d secrets", len(secrets))
	}
	for from, ct := range secrets {
		for body, member := range moves(from, ct) {
			p.misplaced("a patch with "+from, p.patch(st, body), member)
			p.misplaced("a replacement with "+from, p.put(st, body), member)
			_, err := p.ask(st, body)
			p.misplaced("a request with "+from, err, member)
			_, err = p.prepare(st, asRequest(body), nil)
			p.misplaced("a schedule with "+from, err, member)
		}
	}
	for _, other := range []string{"https://evil.example/a.git", "http://git.example/a.git", "https://git.example/b.git"} {
		p.misplaced("the settings with "+other, p.put(st, strings.Replace(before, "https://git.example/a.git", other, 1)), userPath)
	}
	p.misplaced("the settings with another registry", p.put(st, strings.Replace(before, "registry.example/a:1", "a:1", 1)), registryPath)
	if after, _ := p.settings(st); after != before {
		t.Errorf("the settings changed: %s", after)
	}

	// The settings as a client has read them stay valid, with another form of the same addresses too.
	p.must(p.put(st, before))
	p.must(p.patch(st, before))
	p.must(p.put(st, strings.NewReplacer("https://git.example/a.git", "https://GIT.example:443/a", "registry.example/a:1", "registry.example/b:2").Replace(before)))
	_, after := p.settings(st)
	for member, ct := range secrets {
		if after[member] != ct {
			t.Errorf("%s has another ciphertext", member)
		}
	}
	id, err := p.ask(st, `{}`)
	p.must(err)
	p.opens(id, "the password", "the registry", "the variable")

	// Deployments show ciphertexts, too.
	d, err := p.service.Get(t.Context(), st, id)
	p.must(err)
	p.must(d.Settings.EachSecret(func(member string, v *workflow.Secret) error {
		if member != varPath {
			p.misplaced("the ciphertext of a deployment", p.patch(st, `{"operationContext":{"environmentVariables":{"A":`+ciphertext(v.Ciphertext())+`}}}`), varPath)
		}
		return nil
	}))
	other := p.stack("other")
	p.misplaced("another stack", p.put(other, before), userPath)
}

// TestEarlierCiphertexts uses secrets that earlier servers have bound only to their stack.
func TestEarlierCiphertexts(t *testing.T) {
	p, st := newPlaces(t)
	document, old := p.bared(st, withSecrets)
	p.store(st, document)

	// Outside their place they are refused.
	for from, value := range secretValues {
		for body, member := range moves(from, old[value]) {
			p.misplaced("a patch with "+from, p.patch(st, body), member)
			_, err := p.ask(st, body)
			p.misplaced("a request with "+from, err, member)
		}
	}
	p.misplaced("another address", p.put(st, strings.Replace(document, "git.example", "evil.example", 1)), userPath)

	// In their place they are valid, and the next write binds them to it.
	id, err := p.ask(st, `{}`)
	p.must(err)
	p.opens(id, "the password", "the registry", "the variable")
	p.must(p.patch(st, `{"tag":"x"}`))
	entries, err := store.Read(t.Context(), p.db, func(tx *store.Tx) ([]store.AuditEntry, error) {
		return tx.AuditEntries(store.AuditFilter{OrgID: st.OrgID, Action: string(audit.SettingsChanged), Limit: 1})
	})
	p.must(err)
	if len(entries) != 1 || !strings.Contains(entries[0].Detail, `"keys":["tag"]`) {
		t.Errorf("the audit log names changes that the user did not make: %+v", entries)
	}
	after, fresh := p.settings(st)
	for member, value := range secretValues {
		if fresh[member] == old[value] || strings.Contains(after, old[value]) {
			t.Errorf("%s was not encrypted again", member)
		}
	}
	id, err = p.ask(st, `{}`)
	p.must(err)
	p.opens(id, "the password", "the registry", "the variable")

	// A client that has read them before that write can send them again, until the secret changes.
	p.must(p.put(st, document))
	p.must(p.patch(st, `{"operationContext":{"environmentVariables":{"A":{"secret":"another"}}}}`))
	p.misplaced("the former secret", p.put(st, document), varPath)
}

// TestEncryptedBeforehand uses a secret that a client has encrypted before it sends it.
func TestEncryptedBeforehand(t *testing.T) {
	p, st := newPlaces(t)
	sealed, err := p.service.Encrypt(t.Context(), st, workflow.SecretValue("hunter2"))
	p.must(err)
	ct := ciphertext(sealed.Ciphertext())
	p.must(p.put(st, strings.Replace(withSecrets, `{"secret":"the password"}`, ct, 1)))
	doc, secrets := p.settings(st)
	if secrets[passwordPath] == ct {
		t.Error("the settings contain the ciphertext as the client sent it")
	}
	p.misplaced("its stored form in another place", p.patch(st, `{"operationContext":{"environmentVariables":{"A":`+secrets[passwordPath]+`}}}`), varPath)
	p.must(p.put(st, doc))
	id, err := p.ask(st, `{}`)
	p.must(err)
	p.opens(id, "hunter2")
	other := p.stack("other")
	p.misplaced("another stack", p.put(other, `{"operationContext":{"environmentVariables":{"A":`+ct+`}}}`), varPath)

	// It is stored nowhere in this form.
	request, err := p.prepare(st, `{"operation":"update","operationContext":{"environmentVariables":{"B":`+ct+`}}}`, nil)
	p.must(err)
	id, err = p.ask(st, `{"operationContext":{"environmentVariables":{"B":`+ct+`}}}`)
	p.must(err)
	d, err := p.service.Get(t.Context(), st, id)
	p.must(err)
	if raw := strings.TrimSuffix(strings.TrimPrefix(ct, `{"ciphertext":"`), `"}`); strings.Contains(string(request)+d.Configuration, raw) {
		t.Error("a request was stored with the ciphertext as the client sent it")
	}

	// A stored form does not become one that is valid anywhere.
	var stored workflow.Secret
	p.must(json.Unmarshal([]byte(secrets[passwordPath]), &stored))
	if got, err := p.service.Encrypt(t.Context(), st, stored); fault.KindOf(err) != fault.KindInvalid {
		t.Errorf("a stored form: %v, %v", got, err)
	}
}

// TestAgainKeepsSecretsInTheirPlace repeats deployments, also one that an earlier server has created.
func TestAgainKeepsSecretsInTheirPlace(t *testing.T) {
	p, st := newPlaces(t)
	p.must(p.put(st, withSecrets))
	id, err := p.ask(st, `{}`)
	p.must(err)
	p.must(p.put(st, `{}`))
	again, err := p.again(st, id)
	p.must(err)
	p.opens(again.ID, "the password", "the registry", "the variable")

	document, old := p.bared(st, withSecrets)
	p.must(p.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec(`UPDATE deployments SET configuration = $1 WHERE id = $2`, document, id)
		return err
	}))
	p.opens(id, "the password", "the registry", "the variable")
	again, err = p.again(st, id)
	p.must(err)
	p.opens(again.ID, "the password", "the registry", "the variable")
	for member, value := range secretValues {
		if strings.Contains(again.Configuration, old[value]) {
			t.Errorf("%s was not encrypted again", member)
		}
	}
}

// TestLostSecrets changes settings with a secret that the server cannot decrypt, for example because its master key was
// lost. Changes of other members succeed, and the secret stays in its place. It is refused where it has not been.
func TestLostSecrets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("dev")
		p.must(p.put(st, withSecrets))
		doc, secrets := p.settings(st)
		lost := ciphertext(append([]byte{'p'}, bytes.Repeat([]byte{1}, 60)...))
		p.store(st, strings.Replace(doc, secrets[passwordPath], lost, 1))
		p.must(p.patch(st, `{"operationContext":{"environmentVariables":{"B":"x"}}}`))
		doc, secrets = p.settings(st)
		if secrets[passwordPath] != lost || !strings.Contains(doc, `"B":"x"`) {
			t.Errorf("after a patch of another member: %s", doc)
		}
		p.must(p.put(st, strings.Replace(doc, `"B":"x"`, `"B":"y"`, 1)))
		refused := func(what string, err error) {
			t.Helper()
			if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "or its key was lost") {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("the secret in another member", p.patch(st, `{"operationContext":{"environmentVariables":{"B":`+lost+`}}}`))
		refused("the secret for another address", p.put(st, strings.Replace(doc, "https://git.example/a.git", "https://git.example/b.git", 1)))
		_, err := p.ask(st, `{"inheritSettings":true}`)
		refused("a deployment", err)
		p.must(p.patch(st, `{"sourceContext":{"git":{"gitAuth":{"basicAuth":{"userName":{"secret":"the user"},"password":{"secret":"the password"}}}}}}`))
		id, err := p.ask(st, `{"inheritSettings":true}`)
		p.must(err)
		p.opens(id, "the password", "the variable")
	})
}

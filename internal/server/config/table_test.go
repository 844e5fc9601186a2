package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/settings"
)

func TestCompleteness(t *testing.T) {
	var c Config
	value := reflect.ValueOf(&c).Elem()
	fields := map[uintptr]string{}
	for i := range value.NumField() {
		if f := value.Type().Field(i); f.IsExported() {
			fields[value.Field(i).Addr().Pointer()] = f.Name
		}
	}
	rows := map[string]*settings.Field{}
	for _, f := range table(&c).Fields() {
		place := reflect.ValueOf(f.Value).Pointer()
		if fields[place] == "" {
			t.Errorf("%s: points to no field of Config, or to one that another key has", f.Key)
		}
		delete(fields, place)
		rows[f.Key] = f
		if !regexp.MustCompile(`^[a-z][a-z_]*$`).MatchString(f.Key) {
			t.Errorf("%s: unusual key", f.Key)
		}
		if !strings.HasSuffix(f.Doc, ".") {
			t.Errorf("%s: has no documentation in full sentences", f.Key)
		}
		if f.Default == "" && (f.DefaultText == "" || f.Example == "") {
			t.Errorf("%s: has neither a default nor its description and an example", f.Key)
		}
	}
	for _, name := range fields {
		t.Errorf("%s has no row in the table", name)
	}
	for key, f := range rows {
		if _, isSecret := f.Value.(*settings.Secret); isSecret && (rows[key+"_file"] == nil || f.Credential != key) {
			t.Errorf("%s: is a secret without a file or a credential", key)
		}
	}
}

func TestDefaults(t *testing.T) {
	c, err := Load(LoadOptions{Cwd: "/cwd"})
	if err != nil {
		t.Fatalf("the defaults are invalid: %v", err)
	}
	shown := map[string]string{}
	for _, s := range c.Settings() {
		shown[s.Key] = s.Value
	}
	for _, f := range Table().Fields() {
		want := f.Default
		if f.Key == "data_dir" {
			want = "/cwd/" + want
		}
		if f.Key != "runners" && shown[f.Key] != want { // 0 means none
			t.Errorf("%s: default %q is shown as %q", f.Key, want, shown[f.Key])
		}
		if !c.Source(f.Key).IsDefault() {
			t.Errorf("%s: default comes from %q", f.Key, c.Source(f.Key))
		}
	}
}

// TestSample checks that the sample sets nothing, and that each of its lines is a valid setting.
func TestSample(t *testing.T) {
	sample := string(must.Get(os.ReadFile("../../../" + FileName + ".sample"))(t))
	c := must.Get(LoadText(LoadOptions{Cwd: "/cwd"}, "FILE", []byte(sample)))(t)
	dependent := []string{ // need other settings or files
		"acme_directory", "acme_email", "acme_names", "acme_ca_file", "acme_eab_key_id", "acme_eab_key", "acme_eab_key_file",
		"backup_passphrase_file", "database_connections", "database_password", "database_password_file", "metrics_token_file", "releases", "redirect_listen", "tls_cert_file", "tls_key_file", "trusted_proxies",
	}
	for _, f := range Table().Fields() {
		if !c.Source(f.Key).IsDefault() {
			t.Errorf("%s is set by the sample", f.Key)
		}
		if slices.Contains(dependent, f.Key) {
			continue
		}
		active := strings.Replace(sample, "\n#"+f.Key+": ", "\n"+f.Key+": ", 1)
		if c, err := LoadText(LoadOptions{Cwd: "/cwd"}, "FILE", []byte(active)); err != nil || c.Source(f.Key).IsDefault() {
			t.Errorf("%s: the sample's value is not used: %v", f.Key, err)
		}
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"workflowagent/internal/dev/must"
)

const root = "../../../"

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for _, p := range products() {
		page := must.Get(os.ReadFile(root + p.page))(t)
		if want, err := p.reference(page); err != nil || !bytes.Equal(page, want) {
			t.Errorf("%s is out of date (%v): run make generate", p.page, err)
		}
		sample := p.sampleText()
		if got, err := os.ReadFile(root + p.sample); err != nil || !bytes.Equal(got, sample) {
			t.Errorf("%s is out of date (%v): run make generate", p.sample, err)
		}
		schema := must.Get(p.schemaText())(t)
		if got, err := os.ReadFile(root + p.schema); err != nil || !bytes.Equal(got, schema) {
			t.Errorf("%s is out of date (%v): run make generate", p.schema, err)
		}
		for _, group := range p.table.Groups {
			for _, f := range group.Fields {
				if !strings.Contains(string(page), "`"+f.Env+"`") {
					t.Errorf("%s lacks %s", p.page, f.Env)
				}
				if inSample := regexp.MustCompile(`(?m)^#?` + f.Key + `: \S`).Match(sample); inSample == group.EnvOnly {
					t.Errorf("%s: in the sample: %t", f.Key, inSample)
				}
			}
		}
	}
}

// validate reports whether a file matches the schema of a program.
func validate(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	var value any
	var documents []any
	must.OK(t, yaml.Load(text, &documents, yaml.WithAllDocuments()))
	if len(documents) > 0 { // the file contains more than comments
		value = documents[0]
	}
	return schema.Validate(value)
}

func compiled(t *testing.T, p product) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	must.OK(t, compiler.AddResource("schema.json", must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(must.Get(p.schemaText())(t))))(t)))
	return must.Get(compiler.Compile("schema.json"))(t)
}

// TestSchemasAcceptWhatProgramsAccept checks the samples, with all keys active, and the agent's test
// files.
func TestSchemasAcceptWhatProgramsAccept(t *testing.T) {
	for _, p := range products() {
		schema := compiled(t, p)
		active := regexp.MustCompile(`(?m)^#([a-z_]+: )`).ReplaceAll(p.sampleText(), []byte("$1"))
		for name, text := range map[string][]byte{"an empty file": nil, "the sample": p.sampleText(), "the active sample": active} {
			if err := validate(t, schema, text); err != nil {
				t.Errorf("%s: %s: %v", p.title, name, err)
			}
		}
	}
	agent := compiled(t, products()[0])
	names := must.Get(filepath.Glob(root + "internal/agent/config/testdata/*.good.yaml"))(t)
	for _, name := range names {
		if err := validate(t, agent, must.Get(os.ReadFile(name))(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(names) < 10 {
		t.Errorf("found only %d files", len(names))
	}
}

func TestSchemasRefuseMistakes(t *testing.T) {
	all := products()
	for program, files := range [][]string{
		{"tokens: x", "single_run: 1", "max_concurrent_jobs: 0", "deploy_target: podman", "polling_interval: soon", "allowed_images: []", "allowed_images: a", "token: [x]", "docker_memory: 4 gigs", "enabled_workflow_types: [x]"},
		{"lisen: x", "log_level: loud", "runners: 1001", "keep_states_for: 90", "job_lost: 10", "token_sign_in: sometimes", "organization_quota: many", "oidc_audiences: x"},
	} {
		schema := compiled(t, all[program])
		for _, text := range files {
			if err := validate(t, schema, []byte(text)); err == nil {
				t.Errorf("%s: %q was accepted", all[program].title, text)
			}
		}
	}
}

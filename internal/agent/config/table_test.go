package config

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestCompleteness(t *testing.T) {
	c := Default()
	value := reflect.ValueOf(c).Elem()
	places := map[uintptr]string{}
	for i := range value.NumField() {
		if f := value.Type().Field(i); f.IsExported() {
			places[value.Field(i).Addr().Pointer()] = f.Name
		}
	}
	sample, reference := string(Sample()), string(Reference())
	var help bytes.Buffer
	if err := WriteHelp(&help); err != nil {
		t.Fatal(err)
	}
	names, variables := map[string]bool{}, map[string]bool{}
	for _, f := range fields() {
		place := reflect.ValueOf(f.ptr(c)).Pointer()
		if places[place] == "" {
			t.Errorf("%s: points to no field of Config, or to one that another key has", f.name)
		}
		delete(places, place)
		if names[f.name] || variables[f.env] {
			t.Errorf("%s: the name or the variable comes twice", f.name)
		}
		names[f.name], variables[f.env] = true, true

		if !regexp.MustCompile(`^[a-z][a-z_]*$`).MatchString(f.name) || (!f.envOnly && f.env != envPrefix+strings.ToUpper(f.name)) {
			t.Errorf("%s: odd name, or odd variable %s", f.name, f.env)
		}
		if f.doc == "" || !strings.HasSuffix(strings.TrimSuffix(f.doc, ")"), ".") {
			t.Errorf("%s: has no documentation in full sentences", f.name)
		}
		if !f.envOnly && f.def == "" && f.example == "" && f.kind != kindList {
			t.Errorf("%s: has neither a default nor an example", f.name)
		}
		if f.kind == kindList && f.sep == "" {
			t.Errorf("%s: has no separator", f.name)
		}
		for what, text := range map[string]string{"reference page": reference, "help": help.String()} {
			if !strings.Contains(text, f.env) || (!f.envOnly && !strings.Contains(text, f.name)) {
				t.Errorf("%s: not on the %s", f.name, what)
			}
		}
		inSample := regexp.MustCompile(`(?m)^#?` + f.name + `: \S`).MatchString(sample)
		if inSample == f.envOnly {
			t.Errorf("%s: in the sample: %t", f.name, inSample)
		}
	}
	for _, name := range places {
		t.Errorf("Config.%s has no row in the table", name)
	}
}

func TestDefaults(t *testing.T) {
	c := Default()
	for _, f := range fields() {
		was, err := f.set(Default(), f.def, paths{})
		if err != nil || was != (f.def != "") {
			t.Errorf("%s: default %q: set %t, %v", f.name, f.def, was, err)
		}
		if shown := f.show(c); shown != f.def {
			t.Errorf("%s: default %q shows as %q", f.name, f.def, shown)
		}
		if s := c.Source(f.name); s.Kind != FromDefault || s.String() != "default" {
			t.Errorf("%s: default comes from %q", f.name, s)
		}
	}
}

// TestSampleRuns sets the sample's token, and then removes every # before a key.
func TestSampleRuns(t *testing.T) {
	plain := strings.Replace(string(Sample()), "pul-xxx", "pul-0123456789abcdef", 1)
	c, err := loadAndValidate(testOptions(writeFile(t, FileName, plain)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields() {
		if f.name != "token" && c.Source(f.name).Kind != FromDefault {
			t.Errorf("%s is set by the sample", f.name)
		}
	}

	active := regexp.MustCompile(`(?m)^#([a-z_]+: )`).ReplaceAllString(plain, "$1")
	o := testOptions(writeFile(t, FileName, active))
	c, err = Load(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields() {
		if f.envOnly {
			continue
		}
		isSet := c.Source(f.name).Kind == FromFile
		if isPlaceholder := strings.Contains(f.example, "<location of"); isSet == isPlaceholder {
			t.Errorf("%s: set by the active sample: %t", f.name, isSet)
		}
		if f.def != "" && f.show(c) != f.def {
			t.Errorf("%s: the sample shows %q for the default %q", f.name, f.show(c), f.def)
		}
	}
	if want := "/opt/agent"; c.WorkingDirectory != want {
		t.Errorf("the placeholder of working_directory became %q, want %q", c.WorkingDirectory, want)
	}
}

func TestGeneratedFiles(t *testing.T) {
	for path, want := range map[string][]byte{
		"../../../" + FileName + ".sample": Sample(),
		"../../../docs/configuration.md":   Reference(),
	} {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v): run go generate ./internal/agent/config", path, err)
		}
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := WriteHelp(&help); err != nil {
		t.Fatal(err)
	}
	want := "  docker_pids_limit [PULUMI_AGENT_DOCKER_PIDS_LIMIT]\n" +
		"        The limit of processes and threads in a job container, which stops fork bombs; 0 removes the limit (default: 4096)\n"
	if !strings.Contains(help.String(), want) {
		t.Errorf("the help has no\n%s\nin\n%s", want, &help)
	}
}

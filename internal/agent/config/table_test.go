package config

import (
	"bytes"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/settings"
)

func TestCompleteness(t *testing.T) {
	c := defaults()
	value := reflect.ValueOf(c).Elem()
	places := map[uintptr]string{}
	var collect func(prefix string, value reflect.Value)
	collect = func(prefix string, value reflect.Value) {
		for i := range value.NumField() {
			switch f := value.Type().Field(i); {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[settings.Secret]():
				collect(prefix+f.Name+".", value.Field(i))
			default:
				places[value.Field(i).Addr().Pointer()] = prefix + f.Name
			}
		}
	}
	collect("Config.", value)
	var help bytes.Buffer
	must(t, Table().WriteHelp(&help))
	if !strings.Contains(help.String(), "(one of: docker, kubernetes, process)") {
		t.Error("the help does not list the values of deploy_target")
	}
	names, variables := map[string]bool{}, map[string]bool{}
	for _, f := range table(c).Fields() {
		place := reflect.ValueOf(f.Value).Pointer()
		if places[place] == "" {
			t.Errorf("%s: points to no field of Config, or to one that another key has", f.Key)
		}
		delete(places, place)
		if names[f.Key] || variables[f.Env] {
			t.Errorf("%s: the name or the variable appears twice", f.Key)
		}
		names[f.Key], variables[f.Env] = true, true

		if !regexp.MustCompile(`^[a-z][a-z_]*$`).MatchString(f.Key) {
			t.Errorf("%s: unusual key", f.Key)
		}
		if f.Doc == "" || !strings.HasSuffix(strings.TrimSuffix(f.Doc, ")"), ".") {
			t.Errorf("%s: has no documentation in full sentences", f.Key)
		}
		if _, isList := f.Value.(*[]string); isList && f.Separator == "" {
			t.Errorf("%s: has no separator", f.Key)
		}
		if !strings.Contains(help.String(), f.Env) {
			t.Errorf("%s: the help lacks %s", f.Key, f.Env)
		}
	}
	for _, name := range places {
		t.Errorf("%s has no row in the table", name)
	}
}

func TestDefaults(t *testing.T) {
	c := defaults()
	check := table(&Config{})
	if check.SetDefaults(); check.Problems.Err() != nil {
		t.Error(check.Problems.Err())
	}
	for _, f := range Table().Fields() {
		if shown := show(c, f.Key); shown != f.Default {
			t.Errorf("%s: default %q is shown as %q", f.Key, f.Default, shown)
		}
		if s := c.Source(f.Key); !s.IsDefault() || s.String() != "default" {
			t.Errorf("%s: default comes from %q", f.Key, s)
		}
	}
}

// TestSampleRuns checks the sample with its token set, first unchanged and then with the # removed
// before every key.
func TestSampleRuns(t *testing.T) {
	plain := strings.Replace(readSample(t), "pul-xxx", "pul-0123456789abcdef", 1)
	c, err := loadAndValidate(testOptions(writeFile(t, FileName, plain)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Table().Fields() {
		if f.Key != "token" && !c.Source(f.Key).IsDefault() {
			t.Errorf("%s is set by the sample", f.Key)
		}
	}

	active := regexp.MustCompile(`(?m)^#([a-z_]+: )`).ReplaceAllString(plain, "$1")
	o := testOptions(writeFile(t, FileName, active))
	c, err = Load(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Table().Fields() {
		if !strings.Contains(plain, "\n#"+f.Key+": ") && f.Key != "token" {
			continue // has no key in the file
		}
		isSet := !c.Source(f.Key).IsDefault()
		if isPlaceholder := strings.Contains(f.Example, "<location of"); isSet == isPlaceholder {
			t.Errorf("%s: set by the active sample: %t", f.Key, isSet)
		}
		if f.Default != "" && show(c, f.Key) != f.Default {
			t.Errorf("%s: the sample shows %q for the default %q", f.Key, show(c, f.Key), f.Default)
		}
	}
	if want := "/opt/agent"; c.WorkingDirectory != want {
		t.Errorf("the placeholder of working_directory became %q, want %q", c.WorkingDirectory, want)
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	must(t, Table().WriteHelp(&help))
	want := "  docker_pids_limit [PULUMI_AGENT_DOCKER_PIDS_LIMIT]\n" +
		"        The limit of processes and threads in a job container; 0 removes the limit (default: 4096)\n"
	if !strings.Contains(help.String(), want) {
		t.Errorf("the help does not contain\n%s\nbut is\n%s", want, &help)
	}
}

// defaults returns the configuration without a file or environment variables.
func defaults() *Config {
	c := &Config{}
	t := table(c)
	t.SetDefaults()
	c.meta.sources = t.Sources
	return c
}

package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/settings"
)

func edit(t *testing.T, text string, changes ...settings.Change) string {
	t.Helper()
	edited, err := Table().Edit("FILE", []byte(text), changes)
	if err != nil {
		t.Fatal(err)
	}
	return string(edited)
}

func differing(a, b string) []int {
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	if len(left) != len(right) {
		return []int{-1}
	}
	var lines []int
	for i := range left {
		if left[i] != right[i] {
			lines = append(lines, i+1)
		}
	}
	return lines
}

func TestEditTheSample(t *testing.T) {
	sample := readSample(t)
	for _, f := range Table().Fields() {
		if !strings.Contains(sample, "\n#"+f.Key+": ") && f.Key != "token" {
			continue // has no key in the file
		}
		var values [2]string
		switch f.Value.(type) {
		case *bool:
			values = [2]string{"true", "false"}
		case *int, *int64:
			values = [2]string{"3", "7"}
		case *time.Duration:
			values = [2]string{"7m", "9m"}
		case *settings.Seconds:
			values = [2]string{"10m", "2h"}
		case *settings.Path:
			values = [2]string{"/srv/one two", "/srv/three"}
		case *settings.URL:
			values = [2]string{"https://one.example.com", "https://two.example.com:8443"}
		case *settings.Bytes:
			values = [2]string{"512m", "2g"}
		case *settings.CPUs:
			values = [2]string{"1.5", "2"}
		case *settings.Secret:
			values = [2]string{"pul-0123", "p\"u'l#x: y"}
		case *[]string:
			values = [2]string{"a/one" + f.Separator + "b/two", "a/three"}
		default:
			values = [2]string{"one", `t"w\o: #`}
		}
		if f.Choices != nil {
			values = [2]string{f.Choices[0], f.Choices[1]}
		}
		was := sample
		for _, value := range values {
			now := edit(t, was, settings.Change{Key: f.Key, Value: value})
			if lines := differing(was, now); len(lines) != 1 || lines[0] < 0 || !strings.HasPrefix(strings.Split(now, "\n")[lines[0]-1], f.Key+": ") {
				t.Errorf("%s: the lines %v differ", f.Key, lines)
			}
			c, err := LoadText(testOptions(""), "FILE", []byte(now))
			if err != nil {
				t.Errorf("%s: %v", f.Key, err)
				continue
			}
			got := show(c, f.Key)
			if f.Key == "token" {
				got = c.Token.Reveal()
			}
			if got != value {
				t.Errorf("%s: %q is read back as %q", f.Key, value, got)
			}
			was = now
		}
	}
}

func readSample(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../../" + FileName + ".sample")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func show(c *Config, key string) string {
	for _, s := range c.Settings() {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func TestChangeChecked(t *testing.T) {
	o := testOptions("")
	o.Home = "/home/me"
	for value, want := range map[string]string{"state": "/cwd/state", "~/state": "/home/me/state", "/srv": "/srv", "": ""} {
		if got, err := Table().Check(settings.Change{Key: "state_directory", Value: value}, o.Dirs()); err != nil || got.Value != want {
			t.Errorf("%q became %q, %v", value, got.Value, err)
		}
	}
	_, err := Table().Check(settings.Change{Key: "token_expiration", Value: "pul-0123456789abcdef"}, o.Dirs())
	if err == nil || !strings.HasPrefix(err.Error(), "token_expiration: ") || strings.Contains(err.Error(), "0123") {
		t.Errorf("a bad value: %v", err)
	}
	if !Table().IsSecret("token") || Table().IsSecret("service_url") || Table().IsSecret("nonsense") {
		t.Error("the wrong keys are secret")
	}
}

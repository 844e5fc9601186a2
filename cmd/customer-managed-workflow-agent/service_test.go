package main

import (
	"testing"

	"workflowagent/internal/osservice"
)

func TestChoicesOfServiceInstall(t *testing.T) {
	earlier := osservice.Options{Name: "second", Account: "deploy", Docker: true, Profile: osservice.ProfileProcess, Config: "/srv/a.yaml"}
	for flag, want := range map[string]func(*osservice.Options){
		"start":   func(*osservice.Options) {},
		"account": func(o *osservice.Options) { o.Account = "" },
		"docker":  func(o *osservice.Options) { o.Docker = false },
		"process": func(o *osservice.Options) { o.Profile = "" },
		"config":  func(o *osservice.Options) { o.Config = "" },
	} {
		expected := earlier
		want(&expected)
		got := amended(earlier, osservice.Options{}, func(name string) bool { return name == flag })
		if got != expected {
			t.Errorf("--%s: got %+v, want %+v", flag, got, expected)
		}
	}
}

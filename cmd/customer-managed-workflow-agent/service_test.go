package main

import (
	"testing"

	"workflowagent/internal/host/service"
)

func TestChoicesOfServiceInstall(t *testing.T) {
	earlier := service.Options{Name: "second", Account: "deploy", Docker: true, Profile: service.ProfileProcess, Config: "/srv/a.yaml"}
	for flag, want := range map[string]func(*service.Options){
		"start":   func(*service.Options) {},
		"account": func(o *service.Options) { o.Account = "" },
		"docker":  func(o *service.Options) { o.Docker = false },
		"process": func(o *service.Options) { o.Profile = "" },
		"config":  func(o *service.Options) { o.Config = "" },
	} {
		expected := earlier
		want(&expected)
		got := amended(earlier, service.Options{}, func(name string) bool { return name == flag })
		if got != expected {
			t.Errorf("--%s: got %+v, want %+v", flag, got, expected)
		}
	}
}

package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestBeginUpdate runs updates as clients do that create and start an update with one request.
func TestBeginUpdate(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	begin := func(kind string) map[string]any {
		return map[string]any{"updateKind": kind, "program": program(), "tags": map[string]string{"a": kind}, "journalVersion": 2}
	}
	version := 0
	for kind, stored := range map[string]string{
		"update": "update", "refresh": "refresh", "destroy": "destroy", "resource-import": "update", "preview": "preview",
	} {
		var begun struct {
			UpdateID, Token  string
			TokenExpiration  int64
			Version          int
			JournalVersion   int
			RequiredPolicies []any
			Messages         []any
			Deployment       json.RawMessage
			Stack            struct {
				StackName string
				Tags      map[string]string
			}
		}
		f.do("POST", path+"/begin-update", begin(kind)).want(200, &begun)
		journal := 2
		if kind == "preview" {
			journal = 0
		} else {
			version++
		}
		if begun.UpdateID == "" || begun.Token == "" || begun.TokenExpiration == 0 || begun.Version != version ||
			begun.JournalVersion != journal || begun.RequiredPolicies == nil || begun.Messages == nil || begun.Deployment != nil ||
			begun.Stack.StackName != "dev" || kind != "preview" && begun.Stack.Tags["a"] != kind {
			t.Errorf("%s began as %+v", kind, begun)
		}
		if kind != "preview" {
			f.do("POST", path+"/begin-update", begin("update")).want(409, nil).says("Another update is currently in progress")
		}
		u := update{f: f, path: path + "/update/" + begun.UpdateID, token: begun.Token}
		u.send("POST", "/events", event(0)).want(200, nil)
		u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
		if kind == "preview" {
			continue
		}
		var page struct{ Updates []struct{ Kind string } }
		f.do("GET", path+"/updates", nil).want(200, &page)
		if len(page.Updates) != version || page.Updates[0].Kind != stored {
			t.Errorf("%s is stored as %+v, want %s", kind, page.Updates, stored)
		}
	}
	for _, kind := range []string{"", "import", "rename", "other"} {
		f.do("POST", path+"/begin-update", begin(kind)).want(400, nil).says("updateKind")
	}
	window := begin("update")
	window["program"].(map[string]any)["coherenceWindow"] = "w"
	f.do("POST", path+"/begin-update", window).want(400, nil).says("coherence windows")
	f.do("POST", path+"/update", window["program"]).want(400, nil).says("coherence windows")
	f.do("POST", path+"/begin-update", begin("update")).want(200, nil) // the refused ones do not hold the stack
}

// TestStackOutputs reads the outputs of a stack without a state and of one with secret outputs.
func TestStackOutputs(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	if got := f.do("GET", path+"/outputs", nil).want(200, nil).Body; strings.TrimSpace(string(got)) != "{}" {
		t.Errorf("a stack without a state has the outputs %s, want {}", got)
	}
	const provider, outputs = `{"type":"passphrase","state":{"salt":"s"}}`, `{"plain":1,"secret":{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","ciphertext":"AAAA"}}`
	f.do("POST", path+"/import", json.RawMessage(`{"version":3,"deployment":{"secrets_providers":`+provider+`,"resources":[
		{"urn":"urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev","type":"pulumi:pulumi:Stack","outputs":`+outputs+`},
		{"urn":"urn:pulumi:dev::proj::a:b:C::x","type":"a:b:C","outputs":{"other":true}}]}}`)).want(200, nil)
	var got struct{ Outputs, SecretsProviders json.RawMessage }
	f.do("GET", path+"/outputs?readingUpdateID=x", nil).want(200, &got)
	if string(got.Outputs) != outputs || string(got.SecretsProviders) != provider {
		t.Errorf("the outputs are %s with %s", got.Outputs, got.SecretsProviders)
	}
}

package api_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
)

// TestWhatAgentsSayAboutThemselves sends 10 KiB with terminal control characters in every header
// that describes an agent. The server must store and show short, plain text.
func TestWhatAgentsSayAboutThemselves(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		evil := "a\u009b2J\u202eb\xff\tc\u2028" + strings.Repeat("x", 10<<10)
		for name, header := range map[string]map[string]string{
			"all":        {protocol.HeaderAgentID: evil, protocol.HeaderAgentSession: evil, protocol.HeaderAgentHostname: evil, protocol.HeaderAgentPID: evil, protocol.HeaderAgentVersion: evil, protocol.HeaderAgentPlatform: evil, protocol.HeaderPollID: evil},
			"user agent": {"User-Agent": evil},
		} {
			id, token := l.newPool("pool of " + name)
			l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: "token " + token, Header: header}).want(204, nil)
			var got struct {
				Agents []struct{ ID, Hostname, IP, PID, Platform, Version string }
			}
			l.do("GET", "/api/orgs/acme/agent-pools/"+id, nil).want(200, &got)
			if len(got.Agents) != 1 {
				t.Fatalf("%s: agents %+v", name, got.Agents)
			}
			a := got.Agents[0]
			for _, text := range []string{a.ID, a.Hostname, a.IP, a.PID, a.Platform, a.Version} {
				if len(text) > 256 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%s: %d bytes are shown: %.80q", name, len(text), text)
				}
			}
			if !strings.HasPrefix(a.Version, "a2Jbcx") {
				t.Errorf("%s: the version is %.80q", name, a.Version)
			}
		}
	})
}

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestLogOnATerminal logs what a server or a registry could have said.
func TestLogOnATerminal(t *testing.T) {
	for _, colours := range []bool{true, false} {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		log.SetFormatter(&textFormatter{logrus.TextFormatter{ForceColors: colours, DisableColors: !colours}})
		log.WithError(errors.New("told \x1b[1A\ntime=now")).Warn("refused: \x1b[2K\x1b]0;title\x07it\u009b2J\nis level=error")
		got := out.String()
		if strings.Contains(got, "\x1b[1A") || strings.Contains(got, "\x1b[2K") || strings.ContainsAny(got, "\x07\u009b") || strings.Count(got, "\n") != 1 {
			t.Errorf("colours %v: %q", colours, got)
		}
		if !strings.Contains(got, "refused: it2Jis level=error") {
			t.Errorf("the message is %q", got)
		}
	}
}
